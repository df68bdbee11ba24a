//! Parts of an image, as registries keep them.

use sha2::{Digest, Sha256};

/// Bytes of some media type, known by their digest, which is made once: layers are large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    media_type: String,
    content: Vec<u8>,
    digest: String,
}

impl Blob {
    /// A part of those bytes.
    #[must_use]
    pub fn new(media_type: &str, content: Vec<u8>) -> Self {
        let digest = digest(&content);
        Self { media_type: media_type.to_owned(), content, digest }
    }

    /// A part that is a JSON document.
    #[must_use]
    pub fn json(media_type: &str, document: &serde_json::Value) -> Self {
        Self::new(media_type, document.to_string().into_bytes())
    }

    /// What it is.
    #[must_use]
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// Its bytes.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// `sha256:...`
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// How other parts refer to it (OCI image specification, `descriptor.md`).
    #[must_use]
    pub fn descriptor(&self) -> serde_json::Value {
        serde_json::json!({ "mediaType": self.media_type, "digest": self.digest, "size": self.content.len() })
    }
}

fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
