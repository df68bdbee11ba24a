//! Mutations of messages of Protocol Buffers. The schema is not known: a field of bytes that can be read as a message
//! is taken for one.

use fastrand::Rng;

use super::dictionary::Dictionary;

/// Nested messages are read down to this depth.
const MAX_DEPTH: usize = 6;
const MAX_COPIES: usize = 40;
/// A depth at which a decoder without a limit overflows its stack.
const EXTREME_DEPTH: usize = 30_000;

/// The fields of a message, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WireMessage {
    fields: Vec<WireField>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct WireField {
    number: u64,
    payload: WirePayload,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WirePayload {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(Vec<u8>),
    Message(WireMessage),
    Fixed32([u8; 4]),
    /// Anything, written as it is.
    Raw(Vec<u8>),
}

impl WireMessage {
    /// Parses a message; `None` if the bytes are none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        Self::parse_at(bytes, 0)
    }

    fn parse_at(mut bytes: &[u8], depth: usize) -> Option<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let payload = match tag & 7 {
                0 => WirePayload::Varint(varint(&mut bytes)?),
                1 => {
                    let (payload, rest) = bytes.split_first_chunk()?;
                    bytes = rest;
                    WirePayload::Fixed64(*payload)
                }
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    let (payload, rest) = bytes.split_at_checked(length)?;
                    bytes = rest;
                    let nested = (depth < MAX_DEPTH && !payload.is_empty())
                        .then(|| Self::parse_at(payload, depth + 1))
                        .flatten();
                    nested.map_or_else(|| WirePayload::Bytes(payload.to_vec()), WirePayload::Message)
                }
                5 => {
                    let (payload, rest) = bytes.split_first_chunk()?;
                    bytes = rest;
                    WirePayload::Fixed32(*payload)
                }
                _ => return None,
            };
            fields.push(WireField { number: tag >> 3, payload });
        }
        Some(Self { fields })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for WireField { number, payload } in &self.fields {
            let mut tag = |kind: u64| put_varint(&mut out, number.wrapping_shl(3) | kind);
            match payload {
                WirePayload::Varint(value) => {
                    tag(0);
                    put_varint(&mut out, *value);
                }
                WirePayload::Fixed64(bytes) => {
                    tag(1);
                    out.extend_from_slice(bytes);
                }
                WirePayload::Bytes(bytes) => {
                    tag(2);
                    put_bytes(&mut out, bytes);
                }
                WirePayload::Message(message) => {
                    tag(2);
                    put_bytes(&mut out, &message.write());
                }
                WirePayload::Fixed32(bytes) => {
                    tag(5);
                    out.extend_from_slice(bytes);
                }
                WirePayload::Raw(bytes) => out.extend_from_slice(bytes),
            }
        }
        out
    }

    /// Makes one change. `other` is another message, of which fields are taken.
    pub(super) fn mutate(&mut self, other: &WireMessage, dictionary: &Dictionary, rng: &mut Rng) {
        if self.fields.is_empty() {
            self.fields.push(field(other, dictionary, rng));
            return;
        }
        let place = rng.usize(..self.fields.len());
        match rng.u8(..10) {
            0 => drop(self.fields.remove(place)),
            1 => {
                let copies = vec![self.fields[place].clone(); rng.usize(1..MAX_COPIES)];
                self.fields.splice(place..place, copies);
            }
            2 => self.fields[place].number = rng.u64(..24),
            3 => self.fields.insert(place, field(other, dictionary, rng)),
            _ => self.fields[place].payload.mutate(other, dictionary, rng),
        }
    }
}

impl WirePayload {
    fn mutate(&mut self, other: &WireMessage, dictionary: &Dictionary, rng: &mut Rng) {
        match self {
            WirePayload::Message(message) if rng.u8(..5) != 0 => message.mutate(other, dictionary, rng),
            WirePayload::Varint(value) if rng.u8(..3) != 0 => *value = rng.u64(..32),
            WirePayload::Bytes(bytes) if rng.bool() && !bytes.is_empty() => {
                super::bytes::mutate(bytes, dictionary, rng);
            }
            _ => *self = payload(dictionary, rng),
        }
    }
}

fn field(other: &WireMessage, dictionary: &Dictionary, rng: &mut Rng) -> WireField {
    match other.fields.len() {
        length if length > 0 && rng.bool() => other.fields[rng.usize(..length)].clone(),
        _ => WireField { number: rng.u64(..24), payload: payload(dictionary, rng) },
    }
}

fn payload(dictionary: &Dictionary, rng: &mut Rng) -> WirePayload {
    match rng.u8(..12) {
        0..=3 => WirePayload::Varint(dictionary.number(rng).cast_unsigned()),
        4 => WirePayload::Fixed64(rng.u64(..).to_le_bytes()),
        5 => WirePayload::Fixed32(rng.u32(..).to_le_bytes()),
        6 => WirePayload::Message(WireMessage::default()),
        7 => WirePayload::Raw(raw(rng)),
        _ => WirePayload::Bytes(dictionary.text(rng).into_bytes()),
    }
}

/// Returns bytes that decoders often handle wrongly.
fn raw(rng: &mut Rng) -> Vec<u8> {
    let depth = if rng.u8(..8) == 0 { EXTREME_DEPTH } else { rng.usize(1..200) };
    match rng.u8(..6) {
        // Groups in groups of an unknown field, which are skipped one by one.
        0 => [0xa3, 0x06].repeat(depth),
        1 => [[0xa3, 0x06].repeat(depth), [0xa4, 0x06].repeat(depth)].concat(),
        // A length that is much larger than the message.
        2 => vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        // A number with too many bytes.
        3 => vec![0xff; 12],
        // A field with the number 0, and one with an unknown kind.
        4 => vec![0x02, 0x00],
        _ => vec![0x0f],
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for place in 0..10 {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f).checked_shl(7 * place)?;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, u64::try_from(bytes.len()).unwrap_or_default());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn a_message_is_read_and_written_unchanged() {
        let hook = podward_proto::v1::Hook {
            name: "balancer".to_owned(),
            order: -7,
            phases: vec![1, 2],
            deadline: Some(prost_types::Duration { seconds: 300, nanos: 0 }),
            ..podward_proto::v1::Hook::default()
        };
        let bytes = hook.encode_to_vec();
        let parsed = WireMessage::parse(&bytes).unwrap();
        assert_eq!(parsed.write(), bytes);
        assert!(parsed.fields.iter().any(|field| matches!(field.payload, WirePayload::Message(_))));
        assert_eq!(WireMessage::parse(&bytes[..bytes.len() - 1]), None);
    }
}
