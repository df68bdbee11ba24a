//! Mutations of JSON documents.

use fastrand::Rng;
use serde_json::{Map, Value};

use super::dictionary::Dictionary;

/// Marks a text that is written without its quotes, so that documents can contain what [`Value`] cannot express.
const RAW: &str = "raw-json:";
const MAX_COPIES: usize = 40;
const MAX_DEPTH: usize = 200;
/// A depth at which a parser without a limit overflows its stack.
const EXTREME_DEPTH: usize = 30_000;

/// Makes one change in `document`. `other` is another document, of which parts are taken.
pub(super) fn mutate(document: &mut Value, other: &Value, dictionary: &Dictionary, rng: &mut Rng) {
    let mut place = rng.usize(..count(document));
    let Some(node) = nth(document, &mut place) else { return };
    match rng.u8(..20) {
        0 => *node = Value::String(format!("{RAW}{}", raw(rng))),
        1 | 2 => *node = scalar(dictionary, rng),
        3 => {
            let mut place = rng.usize(..count(other));
            if let Some(part) = nth_of(other, &mut place) {
                *node = part.clone();
            }
        }
        _ => change(node, other, dictionary, rng),
    }
}

/// Writes a document.
pub(super) fn write(document: &Value) -> Vec<u8> {
    let text = document.to_string();
    if !text.contains(RAW) {
        return text.into_bytes();
    }
    // Texts of the seeds never contain the mark, and nested documents have other quotes.
    let mark = format!("\"{RAW}");
    let mut parts = text.split(&mark);
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // The end of the text: the first quote that is not escaped.
        let mut escaped = false;
        let end = part.find(|letter| {
            let is_end = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            is_end
        });
        let (raw, rest) = part.split_at(end.unwrap_or(part.len()));
        let raw = serde_json::from_str::<String>(&format!("\"{raw}\"")).unwrap_or_default();
        written.push_str(&raw);
        written.push_str(rest.strip_prefix('"').unwrap_or(rest));
    }
    written.into_bytes()
}

fn change(node: &mut Value, other: &Value, dictionary: &Dictionary, rng: &mut Rng) {
    match node {
        Value::Object(members) => change_members(members, dictionary, rng),
        Value::Array(items) => change_items(items, dictionary, rng),
        Value::String(text) => change_text(text, other, dictionary, rng),
        _ => *node = scalar(dictionary, rng),
    }
}

fn change_members(members: &mut Map<String, Value>, dictionary: &Dictionary, rng: &mut Rng) {
    let key = match members.len() {
        0 => None,
        length => members.keys().nth(rng.usize(..length)).cloned(),
    };
    match (rng.u8(..5), key) {
        (0, Some(key)) => drop(members.remove(&key)),
        (1, Some(key)) => {
            // The same value under another key.
            let value = members.get(&key).cloned().unwrap_or_default();
            members.insert(dictionary.text(rng), value);
        }
        (2, Some(key)) => {
            let value = members.remove(&key).unwrap_or_default();
            members.insert(dictionary.text(rng), value);
        }
        _ => drop(members.insert(dictionary.text(rng), scalar(dictionary, rng))),
    }
}

fn change_items(items: &mut Vec<Value>, dictionary: &Dictionary, rng: &mut Rng) {
    if items.is_empty() {
        items.push(scalar(dictionary, rng));
        return;
    }
    let place = rng.usize(..items.len());
    match rng.u8(..4) {
        0 => drop(items.remove(place)),
        1 => {
            let copies = vec![items[place].clone(); rng.usize(1..MAX_COPIES)];
            items.splice(place..place, copies);
        }
        2 => {
            let other = rng.usize(..items.len());
            items.swap(place, other);
        }
        _ => items.insert(place, scalar(dictionary, rng)),
    }
}

fn change_text(text: &mut String, other: &Value, dictionary: &Dictionary, rng: &mut Rng) {
    let inner =
        serde_json::from_str::<Value>(text).ok().filter(|inner| inner.is_object() || inner.is_array());
    if let Some(mut inner) = inner
        && rng.u8(..4) != 0
    {
        mutate(&mut inner, other, dictionary, rng);
        *text = String::from_utf8(write(&inner)).unwrap_or_default();
        return;
    }
    let at = text.floor_char_boundary(rng.usize(..=text.len()));
    match rng.u8(..7) {
        0 | 1 => *text = dictionary.text(rng),
        2 => text.insert_str(at, &dictionary.text(rng)),
        3 => text.insert(at, rng.char(..)),
        4 => text.truncate(at),
        5 => drop(text.drain(..at)),
        _ => *text = dictionary.number(rng).to_string(),
    }
}

fn scalar(dictionary: &Dictionary, rng: &mut Rng) -> Value {
    match rng.u8(..12) {
        0 => Value::Null,
        1 => Value::Bool(rng.bool()),
        2 => Value::Object(Map::new()),
        3 => Value::Array(Vec::new()),
        4 => Value::from(rng.f64() * 1e300),
        5 => Value::from(u64::MAX),
        6 | 7 => Value::from(dictionary.number(rng)),
        _ => Value::String(dictionary.text(rng)),
    }
}

/// Returns JSON, or nearly JSON, that parsers often handle wrongly.
fn raw(rng: &mut Rng) -> String {
    let depth = if rng.u8(..8) == 0 { EXTREME_DEPTH } else { rng.usize(1..MAX_DEPTH) };
    match rng.u8(..12) {
        0 => "[".repeat(depth) + &"]".repeat(depth),
        1 => "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth),
        2 => "[".repeat(depth),
        3 => "9".repeat(rng.usize(1..400)),
        4 => format!("1e{}", rng.i32(..)),
        5 => "-0.0".to_owned(),
        6 => "\"\\ud800\"".to_owned(),
        7 => "\"\\u0000\"".to_owned(),
        8 => "NaN".to_owned(),
        // Duplicate keys, if it is the value of a member.
        9 => "1,\"labels\":null,\"uid\":\"x\",\"name\":{}".to_owned(),
        10 => "{\"a\":1,\"a\":2}".to_owned(),
        _ => "\"\\uD83D\\uDE00\"".to_owned(),
    }
}

/// Returns the number of values in `document`.
fn count(document: &Value) -> usize {
    1 + match document {
        Value::Object(members) => members.values().map(count).sum(),
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 0,
    }
}

fn nth<'v>(document: &'v mut Value, place: &mut usize) -> Option<&'v mut Value> {
    if *place == 0 {
        return Some(document);
    }
    *place -= 1;
    match document {
        Value::Object(members) => members.values_mut().find_map(|value| nth(value, place)),
        Value::Array(items) => items.iter_mut().find_map(|value| nth(value, place)),
        _ => None,
    }
}

fn nth_of<'v>(document: &'v Value, place: &mut usize) -> Option<&'v Value> {
    if *place == 0 {
        return Some(document);
    }
    *place -= 1;
    match document {
        Value::Object(members) => members.values().find_map(|value| nth_of(value, place)),
        Value::Array(items) => items.iter().find_map(|value| nth_of(value, place)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_is_a_place_for_a_change() {
        let mut document = json!({"a": [1, {"b": "c"}], "d": null});
        assert_eq!(count(&document), 6);
        let found: Vec<Value> =
            (0..6).map(|place| nth_of(&document, &mut { place }).unwrap().clone()).collect();
        assert_eq!(
            found[1..],
            [json!([1, {"b": "c"}]), json!(1), json!({"b": "c"}), json!("c"), json!(null)]
        );
        assert_eq!(nth_of(&document, &mut 6), None);
        *nth(&mut document, &mut 4).unwrap() = json!("changed");
        assert_eq!(document["a"][1]["b"], "changed");
    }

    #[test]
    fn raw_parts_are_written_without_quotes() {
        let raw = Value::String(format!("{RAW}[\"\\\",NaN"));
        assert_eq!(write(&json!({"a": raw, "b": 1})), b"{\"a\":[\"\\\",NaN,\"b\":1}");
        assert_eq!(write(&json!({"a": "b"})), b"{\"a\":\"b\"}");
    }
}
