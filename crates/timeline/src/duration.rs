//! Durations for people.

/// Returns a duration with two or three digits: `12 ms`, `8.1 s`, `2 min 05 s`, `1 h 02 min`.
///
/// ```
/// assert_eq!(podward_timeline::duration(8_140), "8.1 s");
/// ```
#[must_use]
pub fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..10_000 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        10_000..120_000 => format!("{seconds} s"),
        120_000..7_200_000 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        7_200_000..172_800_000 => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_the_digits_that_matter() {
        let shown = [0, 999, 1_000, 9_999, 10_000, 119_999, 125_000, 7_320_000, 180_000_000].map(duration);
        let expected =
            ["0 ms", "999 ms", "1.0 s", "9.9 s", "10 s", "119 s", "2 min 05 s", "2 h 02 min", "2 d 02 h"];
        assert_eq!(shown, expected);
    }
}
