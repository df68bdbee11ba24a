//! Texts in messages.

/// The number of characters of a text from a user in a message.
const EXCERPT: usize = 100;

/// Returns the first `length` characters of `text`, followed by `…` if there are more. Use it for text that webhooks,
/// registries or users wrote.
#[must_use]
pub fn shortened(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the first characters of a text from a user, so that a message that quotes it stays short.
pub(crate) fn excerpt(text: &str) -> String {
    shortened(text, EXCERPT)
}
