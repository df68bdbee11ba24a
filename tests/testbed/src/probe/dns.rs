//! One query to a DNS server over TCP (RFC 1035, sections 4.1 and 4.2.2).

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The id of the query. There is only one on a connection.
const ID: u16 = 0x7077;
/// The bit that marks a response.
const ANSWER: u16 = 0x8000;
/// The bits of the response code; 0 is success.
const CODE: u16 = 0x000f;
const HEADER: usize = 12;

/// Returns whether the server at the other end of `stream` has an IPv4 address of `name`.
pub(super) async fn has_address(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    name: &str,
) -> Result<bool> {
    stream.write_all(&question(name)?).await?;
    let length = usize::from(stream.read_u16().await?);
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await?;
    let field = |at: usize| answer.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    match (field(0), field(2), field(6)) {
        (Some(ID), Some(flags), Some(count)) => Ok(flags & ANSWER != 0 && flags & CODE == 0 && count > 0),
        _ => Err(Error::new(ErrorKind::InvalidData, "an answer to no question of ours")),
    }
}

/// Returns the query for the A records of `name`, preceded by its length.
fn question(name: &str) -> Result<Vec<u8>> {
    let mut message = Vec::with_capacity(HEADER + name.len() + 6);
    // No flags, one question, no records.
    for field in [ID, 0, 1, 0, 0, 0] {
        message.extend(field.to_be_bytes());
    }
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length));
        let length = length.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "not a DNS name"))?;
        message.push(length);
        message.extend(label.as_bytes());
    }
    // The end of the name, type A, class IN.
    message.extend([0, 0, 1, 0, 1]);
    let length = u16::try_from(message.len()).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
    Ok([length.to_be_bytes().as_slice(), &message].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(answer: &'static [u8]) -> Result<bool> {
        let (mut ours, mut theirs) = tokio::io::duplex(512);
        theirs.write_all(answer).await?;
        has_address(&mut ours, "web.default").await
    }

    #[tokio::test]
    async fn an_existing_name_is_distinguished_from_a_missing_one() {
        let known = [0, 12, 0x70, 0x77, 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0];
        assert!(ask(known.to_vec().leak()).await.unwrap());
        // NXDOMAIN, no records, not a response, a response to another query.
        assert!(!ask(&[0, 12, 0x70, 0x77, 0x84, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap());
        assert!(!ask(&[0, 12, 0x70, 0x77, 0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap());
        assert!(!ask(&[0, 12, 0x70, 0x77, 0x04, 0, 0, 1, 0, 1, 0, 0, 0, 0]).await.unwrap());
        assert!(ask(&[0, 12, 0, 1, 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0]).await.is_err());
        assert!(ask(&[0, 2, 0x70, 0x77]).await.is_err());
    }

    #[test]
    fn a_question_has_the_name_in_labels() {
        let asked = question("a.bc.").unwrap();
        let name = [1, b'a', 2, b'b', b'c', 0, 0, 1, 0, 1];
        assert_eq!(asked[2..14], [0x70, 0x77, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(asked[14..], name);
        assert_eq!(asked[..2], [0, 22]);
        assert!(question("a..b").is_err());
        assert!(question(&"x".repeat(64)).is_err());
    }
}
