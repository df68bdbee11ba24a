//! The parameters that a webhook receives for a pod, with the semantics of KusionStack (kuperator,
//! `podtransitionrule/processor/rules/common.go`).

use std::fmt::Write;

use serde_json::Value;

use super::Parameter;
use crate::text::excerpt;

const MAX_PATH: usize = 1024;
const ROOTS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// A parsed `valueFrom.fieldRef.fieldPath`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldPath {
    /// `metadata.labels['<key>']` or `metadata.annotations['<key>']`: the value of one key.
    Entry {
        /// `labels` or `annotations`.
        map: &'static str,
        /// The key.
        key: String,
    },
    /// `metadata.labels` or `metadata.annotations`: all entries, one per line, sorted by key.
    Map(&'static str),
    /// Any other field: the names in its path.
    Walk(Vec<String>),
}

impl FieldPath {
    /// Parses a path.
    ///
    /// # Errors
    /// Fails if a pod has no field with this path. The error states what is valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATH {
            return Err(format!("longer than {MAX_PATH} bytes"));
        }
        match text {
            "metadata.labels" => return Ok(Self::Map("labels")),
            "metadata.annotations" => return Ok(Self::Map("annotations")),
            _ => {}
        }
        for (prefix, map) in [("metadata.labels['", "labels"), ("metadata.annotations['", "annotations")] {
            if let Some(key) = text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix("']")) {
                let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
                if !crate::is_label_value(name) || key.starts_with('/') {
                    return Err(format!("{:?} is not a valid key of a label or an annotation", excerpt(key)));
                }
                return Ok(Self::Entry { map, key: key.to_owned() });
            }
        }
        let names: Vec<String> = text.split('.').map(str::to_owned).collect();
        if text.contains(['[', ']']) {
            return Err(format!(
                "{:?}: only metadata.labels['<key>'] and metadata.annotations['<key>'] may have brackets",
                excerpt(text)
            ));
        }
        if !ROOTS.contains(&names[0].as_str()) || names.iter().any(String::is_empty) {
            return Err(format!(
                "{:?} is not a field of a pod; use a path such as status.podIP or metadata.labels['<key>']",
                excerpt(text)
            ));
        }
        Ok(Self::Walk(names))
    }

    /// Returns the value of the field in a pod's JSON: a text unchanged, any other value as JSON, and an empty text
    /// for a missing field.
    #[must_use]
    pub fn read(&self, pod: &Value) -> String {
        match self {
            Self::Entry { map, key } => text(&pod["metadata"][*map][key.as_str()]),
            Self::Map(map) => lines(&pod["metadata"][*map]),
            Self::Walk(names) => text(names.iter().fold(pod, |value, name| &value[name.as_str()])),
        }
    }
}

impl Parameter {
    /// The parameter's value for a pod, given as its JSON. Empty when it can't be read.
    #[must_use]
    pub fn evaluate(&self, pod: &Value) -> String {
        let value = match &self.value {
            literal if !literal.is_empty() => literal.clone(),
            _ => self.path().and_then(Result::ok).map(|path| path.read(pod)).unwrap_or_default(),
        };
        if value == "null" { String::new() } else { value }
    }

    /// Whether it takes the pod to evaluate it.
    #[must_use]
    pub fn reads_pod(&self) -> bool {
        self.value.is_empty()
    }

    pub(super) fn path(&self) -> Option<Result<FieldPath, String>> {
        let field = self.value_from.as_ref()?.field_ref.as_ref()?;
        Some(FieldPath::parse(&field.field_path))
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        // Go writes JSON with sorted keys and escapes the characters that are special in HTML.
        other => {
            let mut text = other.to_string();
            for (char, escape) in [
                ('<', "\\u003c"),
                ('>', "\\u003e"),
                ('&', "\\u0026"),
                ('\u{2028}', "\\u2028"),
                ('\u{2029}', "\\u2029"),
            ] {
                if text.contains(char) {
                    text = text.replace(char, escape);
                }
            }
            text
        }
    }
}

/// Returns lines of `key="value"`, as the kubelet's downward API and KusionStack write them.
fn lines(map: &Value) -> String {
    let entries = map.as_object().into_iter().flatten();
    let mut entries: Vec<(&String, &str)> =
        entries.filter_map(|(key, value)| Some((key, value.as_str()?))).collect();
    entries.sort_unstable();
    let lines: Vec<String> = entries.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// Quotes a text as Go's `%q` does.
fn quoted(value: &str) -> String {
    let mut text = String::from('"');
    for char in value.chars() {
        match char {
            '"' | '\\' => text.extend(['\\', char]),
            '\x07' => text.push_str("\\a"),
            '\x08' => text.push_str("\\b"),
            '\x0c' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\x0b' => text.push_str("\\v"),
            control if control.is_ascii_control() => {
                // Writing to a String can't fail.
                let _ = write!(text, "\\x{:02x}", u32::from(control));
            }
            control if control.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(control));
            }
            plain => text.push(plain),
        }
    }
    text.push('"');
    text
}
