//! Lines of limited width.

/// Breaks `text` at spaces. Lines after the first are indented by two more columns.
pub(super) fn wrapped(text: &str, indent: usize, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".repeat(indent);
    let mut is_empty = true;
    for word in text.split(' ') {
        let length = line.chars().count() + usize::from(!is_empty) + word.chars().count();
        if !is_empty && length > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent + 2)));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines
}
