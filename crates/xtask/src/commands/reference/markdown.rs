//! Text for cells of Markdown tables.

/// Returns `text` on one line, so that it cannot end a cell or begin an element of HTML.
pub(super) fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    escaped(&words.join(" "))
}

/// The length of a line at most, in bytes. An item of a list is indented by two columns more.
const WIDTH: usize = 158;

/// Returns the paragraphs of `text`, each on lines of at most 158 columns.
pub(super) fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let mut lines = vec![String::new()];
        for word in escaped(paragraph).split_whitespace() {
            match lines.last_mut() {
                Some(line) if line.is_empty() => line.push_str(word),
                Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines.join("\n")
    });
    paragraphs.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Returns `text` as code.
pub(super) fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Escapes what Markdown would take for a cell's end or for HTML. Code between backticks is left alone but for `|`.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(index, part)| {
        let part = part.replace('|', "\\|");
        if index % 2 == 0 { part.replace('<', "&lt;") } else { part }
    });
    parts.collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_and_has_no_bar_and_no_html() {
        assert_eq!(cell("a <b>,\n  or `<c>|d`"), "a &lt;b>, or `<c>\\|d`");
    }

    #[test]
    fn paragraphs_stay_apart_and_are_wrapped() {
        let text = format!("One\nline.\n\n{}", "word ".repeat(40));
        let wrapped = paragraphs(&text);
        assert!(wrapped.starts_with("One line.\n\nword word"));
        assert!(wrapped.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(wrapped.lines().count(), 4);
    }
}
