//! Words for messages.

/// What a stranger wrote, in a length that fits into a message.
pub(crate) fn shortened(text: &str) -> String {
    const LENGTH: usize = 100;
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
