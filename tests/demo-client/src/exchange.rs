//! One request and its response, with HTTP/1.1 over TCP.
//!
//! This does not use a client library, because libraries hide whether a connection closed before the first byte of
//! the response.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The limit for the head of a response, in bytes.
const LONGEST_HEAD: usize = 16 * 1024;

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpAnswer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// True if the connection can be reused.
    pub(crate) reusable: bool,
}

/// The reason why there is no complete response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BrokenExchange {
    /// A short reason, always the same text for the same cause.
    pub(crate) reason: String,
    /// True if the connection closed before the first byte of the response.
    pub(crate) unanswered: bool,
}

/// Returns the bytes of a request for `path` of `host`.
pub(crate) fn request(host: &str, path: &str, keep_alive: bool) -> Vec<u8> {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: {connection}\r\n\r\n").into_bytes()
}

/// Sends `request` and reads the complete response.
pub(crate) async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<HttpAnswer, BrokenExchange> {
    let unanswered = |error: &io::Error| BrokenExchange { reason: words(error), unanswered: true };
    stream.write_all(request).await.map_err(|error| unanswered(&error))?;
    let mut buffer = Vec::with_capacity(1024);
    loop {
        match stream.read_buf(&mut buffer).await {
            Ok(0) if buffer.is_empty() => {
                return Err(BrokenExchange {
                    reason: "closed before the answer".to_owned(),
                    unanswered: true,
                });
            }
            Ok(0) => return Err(broken("closed within the answer")),
            Err(error) if buffer.is_empty() => return Err(unanswered(&error)),
            Err(error) => return Err(broken(&format!("{} within the answer", words(&error)))),
            Ok(_) => {}
        }
        if let Some(answer) = parse(&buffer)? {
            return Ok(answer);
        }
    }
}

/// Returns the response, or `None` if `bytes` are incomplete.
fn parse(bytes: &[u8]) -> Result<Option<HttpAnswer>, BrokenExchange> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(broken("an endless head")),
        Err(error) => return Err(broken(&format!("no HTTP: {error}"))),
    };
    let header = |name: &str| {
        let header = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok()
    };
    let body = header("content-length").and_then(|text| text.trim().parse::<usize>().ok());
    let body = body.ok_or_else(|| broken("an answer without content-length"))?;
    let reusable = !header("connection").is_some_and(|text| text.eq_ignore_ascii_case("close"));
    let answer = HttpAnswer { status: head.code.unwrap_or_default(), reusable };
    Ok((bytes.len() >= length.saturating_add(body)).then_some(answer))
}

fn broken(reason: &str) -> BrokenExchange {
    BrokenExchange { reason: reason.to_owned(), unanswered: false }
}

/// Returns the text of an error without its variable parts.
pub(crate) fn words(error: &io::Error) -> String {
    error.kind().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_body() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{end}");
        }
        assert_eq!(parse(bytes), Ok(Some(HttpAnswer { status: 200, reusable: true })));
        let last = b"HTTP/1.1 503 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(parse(last), Ok(Some(HttpAnswer { status: 503, reusable: false })));
    }

    #[test]
    fn an_invalid_response_is_reported() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n\r\n"), Err(broken("an answer without content-length")));
        assert!(parse(b"SSH-2.0-x\r\n").is_err());
        assert!(parse(&[&b"HTTP/1.1 200 OK\r\nx: "[..], &[b'a'; LONGEST_HEAD]].concat()).is_err());
    }
}
