//! Mutations: small changes of documents that are valid or nearly valid.

mod bytes;
mod dictionary;
mod document;
mod json;
mod protobuf;

use fastrand::Rng;

use crate::corpus::Corpus;
use crate::input::Input;
pub(crate) use dictionary::Dictionary;
pub(crate) use document::Document;

/// The largest number of changes of one input.
const MAX_CHANGES: usize = 5;
/// One input in so many is made large.
const LARGE_EVERY: u32 = 4096;
/// The size of a large input, in bytes. Services accept a few MiB.
const LARGE: usize = 512 * 1024;
/// Other inputs are cut here, so that their handling is fast.
const USUAL: usize = 64 * 1024;

/// Returns a new input: a random one of `corpus` with up to [`MAX_CHANGES`] changes. `last` may continue into others.
pub(crate) fn mutate(corpus: &Corpus, dictionary: &Dictionary, rng: &mut Rng) -> Input {
    let entry = corpus.pick(rng);
    let other = corpus.pick(rng);
    let variant = if rng.u8(..8) == 0 { rng.u8(..) } else { entry.variant };
    let mut document = entry.document.clone();
    let changes = rng.usize(1..=MAX_CHANGES);
    // Bytes are changed last: after that, the document may not be readable any more.
    let of_bytes = if rng.u8(..4) == 0 { rng.usize(1..=changes) } else { 0 };
    for _ in of_bytes..changes {
        match (&mut document, &other.document) {
            (Document::Json(value), Document::Json(other)) => json::mutate(value, other, dictionary, rng),
            (Document::Protobuf(message), Document::Protobuf(other)) => {
                message.mutate(other, dictionary, rng);
            }
            _ => {}
        }
    }
    let mut body = document.write();
    let of_bytes = if matches!(document, Document::Bytes(_)) { changes } else { of_bytes };
    for _ in 0..of_bytes {
        bytes::mutate(&mut body, dictionary, rng);
    }
    if rng.u32(..LARGE_EVERY) == 0 {
        bytes::enlarge(&mut body, LARGE, rng);
    } else {
        body.truncate(USUAL);
    }
    Input { variant, body }
}
