//! Texts in messages.

/// Returns the first 100 characters of a text from a user, so that a message that quotes it stays short.
pub(crate) fn shortened(text: &str) -> String {
    const LENGTH: usize = 100;
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
