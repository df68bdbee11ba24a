//! The documents that are mutated.

use serde_json::Value;

use super::json;
use super::protobuf::WireMessage;
use crate::target::Format;

/// The body of an input, parsed as far as its format allows.
#[derive(Clone, Debug)]
pub(crate) enum Document {
    /// JSON.
    Json(Value),
    /// A message of Protocol Buffers.
    Protobuf(WireMessage),
    /// Neither of them.
    Bytes(Vec<u8>),
}

impl Document {
    pub(crate) fn read(format: Format, body: &[u8]) -> Self {
        let parsed = match format {
            Format::Json => serde_json::from_slice(body).ok().map(Document::Json),
            Format::Protobuf => WireMessage::parse(body).map(Document::Protobuf),
        };
        parsed.unwrap_or_else(|| Document::Bytes(body.to_vec()))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        match self {
            Document::Json(value) => json::write(value),
            Document::Protobuf(message) => message.write(),
            Document::Bytes(bytes) => bytes.clone(),
        }
    }
}
