//! Removes secrets of paths from texts of the API server.

use std::borrow::Cow;

use super::secret::PathSecret;

/// The text before the path of a webhook, in the API server's error about a failed call.
const HOST_END: &str = ".svc:";
const REPLACEMENT: &str = "<secret>";

/// Returns `text` without the secrets of webhook paths. The API server's error about a webhook that it can't call
/// contains the URL, as in `Post "https://validating-webhook.podward-system.svc:443/<secret>/delete?timeout=10s"`.
#[must_use]
pub fn without_webhook_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains(HOST_END) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for (index, part) in text.split('/').enumerate() {
        if index > 0 {
            clean.push('/');
        }
        clean.push_str(if PathSecret::parse(part).is_ok() { REPLACEMENT } else { part });
    }
    Cow::Owned(clean)
}
