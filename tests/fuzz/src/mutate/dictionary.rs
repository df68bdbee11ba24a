//! Texts and numbers that are worth a try.

use fastrand::Rng;
use serde_json::Value;

/// Texts that parsers of times, numbers, names and paths often handle wrongly.
const TEXTS: [&str; 40] = [
    "",
    " ",
    "\0",
    "\n",
    "=",
    "/",
    "//",
    ".",
    "..",
    ",",
    "{}",
    "[]",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-1",
    "1e400",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "2030-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "-009999-01-01T00:00:00Z",
    "0000-00-00T00:00:00Z",
    "1970-01-01T00:00:00+25:59",
    "2030-01-01",
    "é",
    "ß",
    "\u{202e}\u{feff}",
    "\u{10ffff}",
    "a\u{301}",
    "😀",
    "%00",
    "$(id)",
    "<a>",
    "'; --",
    "\\",
];
/// The extremes of integer types, and their neighbours.
const NUMBERS: [i64; 16] = [
    0,
    1,
    -1,
    7,
    127,
    128,
    255,
    65_535,
    65_536,
    2_147_483_647,
    2_147_483_648,
    -2_147_483_648,
    4_294_967_295,
    1_700_000_000_000_000_000,
    i64::MAX,
    i64::MIN,
];
const MAX_REPEATED: usize = 700;

/// The texts of the seeds, and texts and numbers that are often handled wrongly.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    texts: Vec<String>,
}

impl Dictionary {
    /// Adds the keys and texts of a document. Texts that contain JSON are read too.
    pub(crate) fn read(&mut self, document: &Value) {
        match document {
            Value::Object(members) => {
                for (key, value) in members {
                    self.add(key);
                    self.read(value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.read(item)),
            Value::String(text) => {
                self.add(text);
                if let Ok(inner @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text) {
                    self.read(&inner);
                }
            }
            _ => {}
        }
    }

    /// Adds a text.
    pub(crate) fn add(&mut self, text: &str) {
        if !self.texts.iter().any(|known| known == text) {
            self.texts.push(text.to_owned());
        }
    }

    /// Returns a text: mostly one of the seeds.
    pub(crate) fn text(&self, rng: &mut Rng) -> String {
        match rng.u8(..16) {
            0..=9 if !self.texts.is_empty() => self.texts[rng.usize(..self.texts.len())].clone(),
            10 => self.number(rng).to_string(),
            11 => TEXTS[rng.usize(..TEXTS.len())].repeat(rng.usize(..MAX_REPEATED)),
            12 => (0..rng.usize(..12)).map(|_| rng.char(..)).collect(),
            _ => TEXTS[rng.usize(..TEXTS.len())].to_owned(),
        }
    }

    /// Returns a number: an extreme, a neighbour of one, or any.
    pub(crate) fn number(&self, rng: &mut Rng) -> i64 {
        let extreme = NUMBERS[rng.usize(..NUMBERS.len())];
        match rng.u8(..8) {
            0..=4 => extreme,
            5 | 6 => extreme.wrapping_add(rng.i64(-2..=2)),
            _ => rng.i64(..),
        }
    }
}
