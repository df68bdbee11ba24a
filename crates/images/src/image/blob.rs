//! The parts of an image, as a registry stores them.

use sha2::{Digest, Sha256};

/// Content of a media type, identified by its digest. The digest is computed once, because layers are large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    media_type: String,
    content: Vec<u8>,
    digest: String,
}

impl Blob {
    /// Returns a blob with these bytes.
    #[must_use]
    pub fn new(media_type: &str, content: Vec<u8>) -> Self {
        let digest = digest(&content);
        Self { media_type: media_type.to_owned(), content, digest }
    }

    /// Returns a blob with a JSON document.
    #[must_use]
    pub fn json(media_type: &str, document: &serde_json::Value) -> Self {
        Self::new(media_type, document.to_string().into_bytes())
    }

    /// Returns the media type.
    #[must_use]
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// Returns the bytes.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Returns the digest, `sha256:...`.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the descriptor by which other blobs refer to this one (OCI image specification, `descriptor.md`).
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
