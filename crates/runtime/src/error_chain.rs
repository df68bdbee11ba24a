//! The text of an error with its sources.

use std::error::Error;

/// Returns the texts of `error` and its sources, without the wrappers of the transport and without repetitions.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        let says_nothing = matches!(text.as_str(), "transport error" | "connection error");
        if !says_nothing && texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}
