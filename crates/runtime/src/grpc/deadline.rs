//! The header `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Timeout").

use std::time::Duration;

use hyper::HeaderMap;
use tonic::Status;

const HEADER: &str = "grpc-timeout";

/// Returns the client's timeout; `None` if there is no header.
///
/// # Errors
/// INVALID_ARGUMENT when the header is malformed.
pub fn timeout_of(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(parse);
    parsed.map(Some).ok_or_else(|| {
        let value = String::from_utf8_lossy(value.as_bytes());
        Status::invalid_argument(format!(
            "the header {HEADER} is {value:?}; it must be at most eight digits and one of H, M, S, m, u, n"
        ))
    })
}

fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back().filter(char::is_ascii)?;
    let digits = &text[..text.len() - 1];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number * 3600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_those_of_grpc() {
        for (text, parsed) in [
            ("2H", Some(Duration::from_secs(7200))),
            ("3M", Some(Duration::from_secs(180))),
            ("10S", Some(Duration::from_secs(10))),
            ("250m", Some(Duration::from_millis(250))),
            ("7u", Some(Duration::from_micros(7))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("123456789S", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("-1S", None),
            ("1é", None),
            ("1s", None),
        ] {
            assert_eq!(parse(text), parsed, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_input_causes_a_panic(text in ".*") {
            let _ = parse(&text);
        }
    }
}
