//! Texts for people.

use jiff::Timestamp;

/// Returns the age of `since` at `now` in one unit, such as `3 min`. A time in the future is `0 s`.
#[must_use]
pub fn age(since: Timestamp, now: Timestamp) -> String {
    span(now.duration_since(since).as_secs())
}

/// Returns a number of seconds in one unit.
pub(crate) fn span(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5_999 => format!("{} min", seconds / 60),
        seconds @ 6_000..=172_799 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// Escapes control characters, so that text of other programs cannot control a terminal. Line feeds stay.
#[must_use]
pub fn safe_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && letter != '\n' {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Returns the text between the first `before` and the next `after`.
pub(crate) fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

/// Returns the text on one line, at most `limit` characters long.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= limit {
        return line;
    }
    line.chars().take(limit).chain("...".chars()).collect()
}

/// Returns `1 node` or `3 nodes`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        for (seconds, text) in
            [(-5, "0 s"), (99, "99 s"), (100, "1 min"), (5_999, "99 min"), (6_000, "1 h"), (172_800, "2 d")]
        {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn texts_are_cut_and_escaped() {
        assert_eq!(shortened("a  b\nc", 5), "a b c");
        assert_eq!(shortened("üüüüü", 3), "üüü...");
        assert_eq!(safe_text("a\x1b[2J\nb\r"), "a\\u{1b}[2J\nb\\r");
        assert_eq!(between("a (b) c", "(", ")"), Some("b"));
        assert_eq!((count(1, "node"), count(2, "node")), ("1 node".to_owned(), "2 nodes".to_owned()));
    }
}
