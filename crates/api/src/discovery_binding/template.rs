//! Texts with fields of a pod: `${pod.labels['app']}`.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// A text with fields of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field { field: PodField, default: Option<String> },
}

/// A field of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodField {
    /// The name.
    Name,
    /// The namespace.
    Namespace,
    /// The UID.
    Uid,
    /// The first address.
    Ip,
    /// The name of the node.
    Node,
    /// The value of a label.
    Label(String),
    /// The value of an annotation.
    Annotation(String),
}

/// The reason why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidTemplate(String);

const NAMES: [(&str, PodField); 5] = [
    ("pod.name", PodField::Name),
    ("pod.namespace", PodField::Namespace),
    ("pod.uid", PodField::Uid),
    ("pod.ip", PodField::Ip),
    ("pod.node", PodField::Node),
];
const VALID: &str =
    "pod.name, pod.namespace, pod.uid, pod.ip, pod.node, pod.labels['<key>'], pod.annotations['<key>']";

impl PodField {
    fn parse(text: &str) -> Option<Self> {
        let keyed = |start: &str| {
            let key = text.strip_prefix(start)?.strip_suffix("']")?;
            (!key.is_empty() && !key.contains('\'')).then(|| key.to_owned())
        };
        let named = NAMES.iter().find(|(name, _)| *name == text).map(|(_, field)| field.clone());
        named
            .or_else(|| keyed("pod.labels['").map(PodField::Label))
            .or_else(|| keyed("pod.annotations['").map(PodField::Annotation))
    }
}

impl fmt::Display for PodField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PodField::Label(key) => write!(f, "pod.labels['{key}']"),
            PodField::Annotation(key) => write!(f, "pod.annotations['{key}']"),
            field => {
                let name = NAMES.iter().find(|(_, known)| known == field).map_or("", |(name, _)| name);
                f.write_str(name)
            }
        }
    }
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// Fails if a `${` is not closed or names a field that does not exist, or if a `$` stands alone.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            literal.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                literal.push('$');
                rest = after;
                continue;
            }
            let Some((inner, after)) = after.strip_prefix('{').and_then(|after| after.split_once('}')) else {
                return Err(InvalidTemplate(
                    "write ${field} for a field of the pod, $$ for a dollar sign".to_owned(),
                ));
            };
            let (name, default) = match inner.split_once(":-") {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (inner, None),
            };
            let Some(field) = PodField::parse(name) else {
                return Err(InvalidTemplate(format!(
                    "${{{name}}} is no field of a pod; the fields are {VALID}"
                )));
            };
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Field { field, default });
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self { parts })
    }

    /// Returns the text. `value` returns the value of a field, or `None` if the pod does not have it.
    ///
    /// # Errors
    /// Returns the first field that the pod does not have and that has no default.
    pub fn render<'v>(&self, value: impl Fn(&PodField) -> Option<Cow<'v, str>>) -> Result<String, PodField> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Field { field, default } => match (value(field), default) {
                    (Some(value), None) => text.push_str(&value),
                    (Some(value), Some(_)) if !value.is_empty() => text.push_str(&value),
                    (_, Some(default)) => text.push_str(default),
                    (None, None) => return Err(field.clone()),
                },
            }
        }
        Ok(text)
    }

    /// Returns the text if it names no field.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> Result<String, String> {
        let template = Template::parse(text).map_err(|error| error.to_string())?;
        let value = |field: &PodField| match field {
            PodField::Name => Some(Cow::Borrowed("web-0")),
            PodField::Label(key) if key == "app" => Some(Cow::Borrowed("web")),
            PodField::Label(key) if key == "empty" => Some(Cow::Borrowed("")),
            _ => None,
        };
        template.render(value).map_err(|field| format!("no {field}"))
    }

    #[test]
    fn fields_are_filled_in() {
        for (text, filled) in [
            ("plain", "plain"),
            ("", ""),
            ("$$5", "$5"),
            ("${pod.name}.${pod.labels['app']}", "web-0.web"),
            ("${pod.labels['none']:-x}", "x"),
            ("${pod.labels['empty']:-x}", "x"),
            ("${pod.labels['empty']}", ""),
            ("${pod.labels['none']:-}", ""),
        ] {
            assert_eq!(render(text), Ok(filled.to_owned()), "{text}");
        }
        assert_eq!(render("${pod.ip}"), Err("no pod.ip".to_owned()));
        assert_eq!(render("${pod.annotations['a/b']}"), Err("no pod.annotations['a/b']".to_owned()));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["$x", "${pod.name", "${name}", "${}", "${pod.labels[app]}", "${pod.labels['']}", "5$"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
