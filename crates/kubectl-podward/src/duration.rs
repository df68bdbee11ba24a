//! Times in the command line.

use std::time::Duration;

use jiff::SignedDuration;
use podward_runtime::args::seconds;

/// Parses seconds, which may have a fraction (`0.5`), or a time as kubectl takes it (`90s`, `5m`, `1h30m`); at most a day.
///
/// # Errors
/// When `text` is neither; the error says what is accepted.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = text.parse::<SignedDuration>().map(|time| time.as_secs_f64().to_string());
    seconds(time.as_deref().unwrap_or(text))
        .map_err(|_| format!("{text:?} is no time of at most a day: seconds, or a time such as 5m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_have_units() {
        for (text, seconds) in
            [("90", 90.0), ("0.5", 0.5), ("60s", 60.0), ("5m", 300.0), ("1h30m", 5_400.0), ("24h", 86_400.0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "-5m", "-1", "25h", "86401", "m", "5x", "soon"] {
            let error = format!("{text:?} is no time of at most a day: seconds, or a time such as 5m");
            assert_eq!(duration(text), Err(error));
        }
    }
}
