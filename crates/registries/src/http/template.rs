//! Texts with fields of a change: `/services/${service}/${id}`.

use std::borrow::Cow;

use crate::instance::{Instance, ServiceKey};

/// What a template is filled with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) service: Option<&'a ServiceKey>,
    pub(crate) instance: Option<&'a Instance>,
}

/// The fields that a template may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// None.
    Nothing,
    /// Those of a service.
    Service,
    /// Those of a service and one of its instances.
    Instance,
}

/// A field of a service or an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Service,
    Namespace,
    Group,
    Cluster,
    Id,
    Host,
    Port,
    Weight,
    InService,
    /// All metadata.
    Metadata,
    /// The value of one key of the metadata.
    Entry(String),
}

/// The names of fields that have one.
const NAMES: [(&str, Field); 10] = [
    ("service", Field::Service),
    ("namespace", Field::Namespace),
    ("group", Field::Group),
    ("cluster", Field::Cluster),
    ("id", Field::Id),
    ("host", Field::Host),
    ("port", Field::Port),
    ("weight", Field::Weight),
    ("inService", Field::InService),
    ("metadata", Field::Metadata),
];

impl Field {
    fn scope(&self) -> Scope {
        match self {
            Field::Service | Field::Namespace | Field::Group => Scope::Service,
            _ => Scope::Instance,
        }
    }
}

/// `${field}`, `${field:-default}` or `${field|string}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placeholder {
    pub(crate) field: Field,
    /// What stands for a field that is empty or not there.
    pub(crate) default: Option<String>,
    /// True if the field is a text where it could be something else.
    pub(crate) is_text: bool,
}

impl Placeholder {
    /// Returns the text of the field.
    ///
    /// # Errors
    /// Fails if the field is not there, and there is no default.
    pub(crate) fn text<'a>(&'a self, subject: Subject<'a>) -> Result<Cow<'a, str>, String> {
        let of_service = |get: fn(&ServiceKey) -> &str| subject.service.map(|it| Cow::Borrowed(get(it)));
        let of_instance = |get: fn(&Instance) -> &str| subject.instance.map(|it| Cow::Borrowed(get(it)));
        let text = match &self.field {
            Field::Service => of_service(|service| &service.name),
            Field::Namespace => of_service(|service| &service.namespace),
            Field::Group => of_service(|service| &service.group),
            Field::Cluster => of_instance(|instance| &instance.cluster),
            Field::Id => of_instance(|instance| &instance.id),
            Field::Host => of_instance(|instance| &instance.host),
            Field::Port => subject.instance.map(|instance| instance.port.to_string().into()),
            Field::Weight => subject.instance.map(|instance| instance.weight.to_string().into()),
            Field::InService => subject.instance.map(|instance| instance.in_service.to_string().into()),
            Field::Metadata => None,
            Field::Entry(key) => {
                subject.instance.and_then(|instance| Some(instance.metadata.get(key)?.as_str().into()))
            }
        };
        match (text, &self.default) {
            (Some(text), Some(default)) if text.is_empty() => Ok(Cow::Borrowed(default)),
            (Some(text), _) => Ok(text),
            (None, Some(default)) => Ok(Cow::Borrowed(default)),
            (None, None) => Err(format!("the instance has no {}", self.name())),
        }
    }

    /// Returns the name of the field, for messages.
    pub(crate) fn name(&self) -> String {
        match &self.field {
            Field::Entry(key) => format!("metadata['{key}']"),
            field => NAMES.iter().find(|(_, it)| it == field).map(|(name, _)| *name).unwrap_or("").to_owned(),
        }
    }
}

/// A parsed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Field(Placeholder),
}

impl Template {
    /// Parses a text. `$$` stands for `$`.
    ///
    /// # Errors
    /// Fails with a message for people if a `${` is not closed, or names a field that does not exist in this scope.
    pub(crate) fn parse(text: &str, scope: Scope) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            literal.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                literal.push('$');
                rest = after;
            } else if let Some(after) = after.strip_prefix('{') {
                let (placeholder, after) = placeholder(after, scope)?;
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                parts.push(Part::Field(placeholder));
                rest = after;
            } else {
                return Err("write $$ for a dollar sign, or ${field} for a field".to_owned());
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self { parts })
    }

    /// Returns the text, each field as it is.
    ///
    /// # Errors
    /// Fails if a field is not there.
    pub(crate) fn fill(&self, subject: Subject<'_>) -> Result<String, String> {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Field(placeholder) => filled.push_str(&placeholder.text(subject)?),
            }
        }
        Ok(filled)
    }

    pub(crate) fn names(&self, wanted: &Field) -> bool {
        self.placeholders().any(|placeholder| placeholder.field == *wanted)
    }

    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(placeholder) => Some(placeholder),
            Part::Text(_) => None,
        })
    }
}

/// Parses what follows `${`. Returns the placeholder, and what follows it.
fn placeholder(text: &str, scope: Scope) -> Result<(Placeholder, &str), String> {
    let open = || format!("\"${{{text}\" has no closing '}}'");
    let (field, mut rest) = if let Some(after) = text.strip_prefix("metadata['") {
        let (key, after) = after.split_once("']").ok_or_else(open)?;
        (Field::Entry(key.to_owned()), after)
    } else {
        let end = text.find(['}', ':', '|']).ok_or_else(open)?;
        let name = &text[..end];
        let known = NAMES.into_iter().find(|(it, _)| *it == name).map(|(_, field)| field);
        let field = known.ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            format!("there is no field {name:?}; the fields are {names} and metadata['<key>']")
        })?;
        (field, &text[end..])
    };
    if field.scope() > scope {
        let here = match scope {
            Scope::Nothing => "no fields",
            _ => "only service, namespace and group",
        };
        return Err(format!("\"${{{text}\": {here} can be named here"));
    }
    let is_text = rest.starts_with("|string");
    rest = rest.strip_prefix("|string").unwrap_or(rest);
    let mut default = None;
    if let Some(after) = rest.strip_prefix(":-") {
        let end = after.find('}').ok_or_else(open)?;
        default = Some(after[..end].to_owned());
        rest = &after[end..];
    }
    let rest = rest.strip_prefix('}').ok_or_else(|| {
        format!("\"${{{text}\": a field may be followed by |string or :-<default> and must end with '}}'")
    })?;
    Ok((Placeholder { field, default, is_text }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::{example, subject};

    fn filled(text: &str) -> Result<String, String> {
        let (service, instance) = example();
        Template::parse(text, Scope::Instance)?.fill(subject(&service, &instance))
    }

    #[test]
    fn fields_are_filled_in() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$$5", "$5"),
            ("${service}/${id}", "shop/web-1"),
            ("${host}:${port}", "10.0.0.7:8080"),
            ("${weight},${inService}", "2,true"),
            ("${metadata['zone']}", "a \"b\"/ü"),
            ("${metadata['none']:-x}", "x"),
            ("${namespace:-public}", "public"),
            ("${group}", ""),
            ("${port|string}", "8080"),
            ("ü${id}ü", "üweb-1ü"),
        ] {
            assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(filled("${metadata['none']}"), Err("the instance has no metadata['none']".to_owned()));
    }

    #[test]
    fn wrong_templates_are_rejected_with_the_reason() {
        for (text, reason) in [
            ("$", "write $$"),
            ("$id", "write $$"),
            ("${id", "no closing"),
            ("${metadata['a}", "no closing"),
            ("${id:-x", "no closing"),
            ("${ip}", "there is no field \"ip\"; the fields are service, namespace"),
            ("${id|number}", "may be followed by"),
            ("${}", "there is no field \"\""),
        ] {
            let error = Template::parse(text, Scope::Instance).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for (text, scope) in [("${id}", Scope::Service), ("${service}", Scope::Nothing)] {
            let error = Template::parse(text, scope).unwrap_err();
            assert!(error.contains("can be named here"), "{text}: {error}");
        }
        assert!(Template::parse("${service}", Scope::Service).is_ok());
    }
}
