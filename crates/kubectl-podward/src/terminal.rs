//! Output for people: with colours on a terminal, and drawn again on one.

use std::io::{Result, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use podward_core::webhook_path::without_webhook_secrets;
use podward_diagnosis::safe_text;

use crate::connection::with_connection;

/// Clears a terminal, and moves to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Something that is wrong.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Something that may become wrong.
pub(crate) const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
/// What is to be read first.
pub(crate) const FIRST: Style = Style::new().bold();

/// Returns the style of a line, by its number from 0 and its text.
pub(crate) type LineStyle = fn(usize, &str) -> Style;

/// Prints `text`. On a terminal, each line has the style that `style` returns, unless the environment sets `NO_COLOR`.
///
/// # Errors
/// When the output is closed.
pub(crate) fn print(text: &str, style: LineStyle) -> Result<()> {
    anstream::stdout().lock().write_all(styled(text, style).as_bytes())
}

/// Prints a line of the result. Nothing is printed if the output is closed: the exit code says the same.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", safe_line(&with_connection(line)));
}

/// Writes a line of progress to the standard error, unless that is closed. It may be an error of the API server.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", safe_line(&with_connection(&without_webhook_secrets(line))));
}

/// Replaces what the terminal shows with `text`, in the styles of [`print`].
///
/// # Errors
/// When the output is closed.
pub(crate) fn redraw(text: &str, style: LineStyle) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(CLEAR.as_bytes())?;
    let mut out = AutoStream::auto(out);
    out.write_all(styled(text, style).as_bytes())?;
    out.flush()
}

/// Returns a text that others have written, so that it can be shown: on one line, and without control characters.
pub(crate) fn safe_line(text: &str) -> String {
    safe_text(text).replace('\n', " ")
}

fn styled(text: &str, style: LineStyle) -> String {
    let lines = text.split_inclusive('\n').enumerate().map(|(number, line)| {
        let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
        let style = style(number, content);
        format!("{style}{content}{style:#}{end}")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_stay_on_their_line() {
        assert_eq!(safe_line("a\nb \u{1b}[31mc\r"), "a b \\u{1b}[31mc\\r");
    }

    #[test]
    fn a_style_ends_with_its_line() {
        let style: LineStyle = |number, line| match (number, line) {
            (0, _) => FIRST,
            (_, "bad") => BAD,
            _ => Style::new(),
        };
        assert_eq!(styled("a\nb\nbad\n", style), "\x1b[1ma\x1b[0m\nb\n\x1b[31mbad\x1b[0m\n");
        assert_eq!(styled("a\n\nbad", style), "\x1b[1ma\x1b[0m\n\n\x1b[31mbad\x1b[0m");
        assert_eq!(styled("", style), "");
    }
}
