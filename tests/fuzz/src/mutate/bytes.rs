//! Mutations of bytes, whatever they mean.

use fastrand::Rng;

use super::dictionary::Dictionary;

const MAX_RUN: usize = 64;

/// Makes one change.
pub(super) fn mutate(body: &mut Vec<u8>, dictionary: &Dictionary, rng: &mut Rng) {
    if body.is_empty() {
        body.extend_from_slice(dictionary.text(rng).as_bytes());
        return;
    }
    let at = rng.usize(..body.len());
    let end = at + rng.usize(1..=MAX_RUN.min(body.len() - at));
    match rng.u8(..9) {
        0 => body[at] ^= 1 << rng.u8(..8),
        1 => body[at] = rng.u8(..),
        2 => body.insert(at, rng.u8(..)),
        3 => drop(body.drain(at..end)),
        4 => {
            let run = body[at..end].to_vec();
            let times = rng.usize(1..8);
            body.splice(at..at, run.repeat(times));
        }
        5 => body.truncate(at),
        6 => drop(body.splice(at..at, dictionary.text(rng).into_bytes())),
        7 => drop(body.splice(at..end, dictionary.number(rng).to_string().into_bytes())),
        _ => {
            let other = rng.usize(..body.len());
            body.swap(at, other);
        }
    }
}

/// Repeats a part until there are `size` bytes.
pub(super) fn enlarge(body: &mut Vec<u8>, size: usize, rng: &mut Rng) {
    if body.is_empty() || body.len() >= size {
        return;
    }
    let at = rng.usize(..body.len());
    let part = body[at..at + rng.usize(1..=body.len() - at)].to_vec();
    let times = (size - body.len()).div_ceil(part.len());
    body.splice(at..at, part.repeat(times));
    body.truncate(size);
}
