//! Text of bounded length for messages.

/// Returns the first `length` characters of `text`, followed by `…` if there are more. Use it for text that webhooks or
/// users wrote.
pub(crate) fn shortened(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
