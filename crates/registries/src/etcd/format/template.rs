//! Keys and values by templates.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::http::body::Body;
use crate::http::template::{Field, Part, Scope, Subject, Template};
use crate::instance::{Instance, ServiceKey};
use crate::listed::ip_of;
use crate::owner::Owner;

/// What the key of an instance says.
#[derive(Debug)]
pub(in crate::etcd) struct PodKey {
    pub(in crate::etcd) id: String,
    pub(in crate::etcd) host: Option<String>,
    pub(in crate::etcd) port: Option<u16>,
}

/// A key `<lead>${service}<delimiter><rest>` and a value of JSON.
#[derive(Clone, Debug)]
pub(in crate::etcd) struct TemplateFormat {
    lead: String,
    delimiter: String,
    rest: Template,
    value: Body,
}

/// What was found at the fields of a template.
#[derive(Debug, Default)]
struct Found {
    id: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    weight: Option<f64>,
    metadata: Option<BTreeMap<String, String>>,
}

impl TemplateFormat {
    /// # Errors
    /// Fails with a message for people that says what is wrong with a template.
    pub(super) fn new(key: &str, value: &str) -> Result<Self, String> {
        let parsed = Template::parse(key, Scope::Instance).map_err(|error| format!("key: {error}"))?;
        let value = Body::parse(value, Scope::Instance).map_err(|error| format!("value: {error}"))?;
        let (lead, delimiter, rest) = divided(parsed).map_err(|problem| format!("key {key:?}: {problem}"))?;
        let format = Self { lead, delimiter, rest, value };
        format.check()?;
        Ok(format)
    }

    fn check(&self) -> Result<(), String> {
        if !self.value.names(&Field::Metadata) {
            return Err(
                "value: it must contain \"${metadata}\": all metadata, which says who has registered an instance"
                    .to_owned(),
            );
        }
        for field in [Field::Host, Field::Port] {
            if !self.value.names(&field) && !self.rest.names(&field) {
                return Err("value: it must contain ${host} and ${port}, unless the key does".to_owned());
            }
        }
        check_readable(&self.value)
    }

    pub(super) fn by_address(&self) -> bool {
        !self.rest.names(&Field::Id)
    }

    /// Returns true if the key of an instance is another one when its address changes, although its id stays.
    pub(super) fn may_move(&self) -> bool {
        self.rest.names(&Field::Id) && (self.rest.names(&Field::Host) || self.rest.names(&Field::Port))
    }

    pub(super) fn has_weight(&self) -> bool {
        self.value.names(&Field::Weight)
    }

    pub(super) fn path(&self, service: Option<&ServiceKey>) -> String {
        match service {
            Some(service) => format!("{}{}{}", self.lead, service.name, self.delimiter),
            None => self.lead.clone(),
        }
    }

    pub(super) fn key(&self, service: &ServiceKey, instance: &Instance) -> Result<Vec<u8>, String> {
        if service.name.contains(&self.delimiter) {
            let (name, delimiter) = (&service.name, &self.delimiter);
            return Err(format!("the name {name:?} contains {delimiter:?}, which follows it in the key"));
        }
        let rest = self.rest.fill(Subject { service: Some(service), instance: Some(instance) })?;
        Ok(format!("{}{rest}", self.path(Some(service))).into_bytes())
    }

    pub(super) fn value(&self, service: &ServiceKey, instance: &Instance) -> Result<Vec<u8>, String> {
        let value = self.value.fill(Subject { service: Some(service), instance: Some(instance) })?;
        serde_json::to_vec(&value).map_err(|error| error.to_string())
    }

    pub(super) fn service<'k>(&self, rest: &'k str) -> Option<&'k str> {
        let (service, rest) = rest.split_once(&self.delimiter)?;
        self.read_key(rest).is_some().then_some(service)
    }

    pub(super) fn instance(&self, rest: &str, value: &[u8]) -> Option<Instance> {
        let mut found = self.read_key(rest)?;
        read(&self.value, &serde_json::from_slice(value).ok()?, &mut found)?;
        let (host, port) = (found.host?, found.port?);
        Some(Instance {
            id: found.id.unwrap_or_else(|| format!("{host}:{port}")),
            host,
            port,
            cluster: String::new(),
            weight: found.weight.unwrap_or(1.0),
            metadata: found.metadata.unwrap_or_default(),
            in_service: true,
            may_return: false,
            version: None,
        })
    }

    pub(super) fn pod_key(&self, rest: &str) -> Option<PodKey> {
        let Found { id, host, port, .. } = self.read_key(rest)?;
        let id = match id {
            Some(id) => Owner::pod_in_id(&id).is_some().then_some(id),
            // Pods have IP addresses.
            None => {
                let host = host.as_deref()?;
                ip_of(host).map(|_| format!("{host}:{}", port.unwrap_or_default()))
            }
        };
        Some(PodKey { id: id?, host, port })
    }

    fn read_key(&self, rest: &str) -> Option<Found> {
        let mut found = Found::default();
        read_text(&self.rest.parts, rest, &mut found)?;
        Some(found)
    }
}

/// Divides the template of a key into what is before the service, the text after it, and the rest.
fn divided(key: Template) -> Result<(String, String, Template), String> {
    let mut parts = key.parts.into_iter().peekable();
    let lead = match parts.next_if(|part| matches!(part, Part::Text(_))) {
        Some(Part::Text(text)) => text,
        _ => String::new(),
    };
    let is_service = |part: &Part| matches!(part, Part::Field(it) if it.field == Field::Service);
    parts.next_if(is_service).ok_or("${service} must be its first field")?;
    let delimiter = match parts.next() {
        Some(Part::Text(text)) => text,
        _ => return Err("a text such as / must follow ${service}".to_owned()),
    };
    let rest = Template { parts: parts.collect() };
    for placeholder in rest.placeholders() {
        if !matches!(placeholder.field, Field::Id | Field::Host | Field::Port)
            || placeholder.default.is_some()
        {
            return Err(
                "after ${service} it may contain ${id}, ${host} and ${port}, without defaults".to_owned()
            );
        }
    }
    let is_unique = rest.names(&Field::Id) || (rest.names(&Field::Host) && rest.names(&Field::Port));
    if !is_unique {
        return Err(
            "it must contain ${id}, or ${host} and ${port}: each instance has a key of its own".to_owned()
        );
    }
    check_apart(&rest)?;
    Ok((lead, delimiter, rest))
}

/// Checks that a text with two fields can be read.
fn check_apart(template: &Template) -> Result<(), String> {
    let is_field = |part: &Part| matches!(part, Part::Field(_));
    match template.parts.windows(2).any(|two| two.iter().all(is_field)) {
        true => Err("there must be a text between two fields".to_owned()),
        false => Ok(()),
    }
}

fn check_readable(value: &Body) -> Result<(), String> {
    match value {
        Body::Literal(_) | Body::Typed(_) => Ok(()),
        Body::Text(template) => check_apart(template).map_err(|problem| format!("value: {problem}")),
        Body::Array(values) => values.iter().try_for_each(check_readable),
        Body::Object(fields) => fields.iter().try_for_each(|(_, value)| check_readable(value)),
    }
}

/// Reads the fields of `template` in a value. `None` if it is not of that form.
fn read(template: &Body, value: &Value, found: &mut Found) -> Option<()> {
    match template {
        // It is compared by nobody: others may have changed it.
        Body::Literal(_) => Some(()),
        Body::Text(template) => read_text(&template.parts, value.as_str()?, found),
        Body::Typed(placeholder) => {
            match (&placeholder.field, value) {
                (Field::Metadata, Value::Object(fields)) => found.metadata = Some(texts(fields)),
                (Field::Port, value) => found.port = Some(u16::try_from(value.as_u64()?).ok()?),
                (Field::Weight, value) => found.weight = Some(value.as_f64()?),
                (Field::Metadata, _) => return None,
                _ => {}
            }
            Some(())
        }
        Body::Array(templates) => {
            let values = value.as_array().filter(|values| values.len() == templates.len())?;
            templates.iter().zip(values).try_for_each(|(template, value)| read(template, value, found))
        }
        Body::Object(fields) => {
            let values = value.as_object()?;
            fields.iter().try_for_each(|(key, template)| read(template, values.get(key)?, found))
        }
    }
}

/// Reads the fields in a text from its end on: a host may contain what is before a port.
fn read_text(parts: &[Part], text: &str, found: &mut Found) -> Option<()> {
    let mut text = text;
    let mut parts = parts.iter().rev().peekable();
    while let Some(part) = parts.next() {
        match part {
            Part::Text(literal) => text = text.strip_suffix(literal.as_str())?,
            Part::Field(placeholder) => {
                let begin = match parts.peek() {
                    Some(Part::Text(literal)) => text.rfind(literal.as_str())? + literal.len(),
                    _ => 0,
                };
                found.take(&placeholder.field, &text[begin..])?;
                text = &text[..begin];
            }
        }
    }
    text.is_empty().then_some(())
}

impl Found {
    fn take(&mut self, field: &Field, text: &str) -> Option<()> {
        match field {
            Field::Id if text.is_empty() || text.contains('/') => return None,
            Field::Id => self.id = Some(text.to_owned()),
            Field::Host => self.host = Some(text.to_owned()),
            Field::Port => self.port = Some(text.parse().ok()?),
            Field::Weight => self.weight = Some(text.parse().ok().filter(|weight: &f64| weight.is_finite())?),
            _ => {}
        }
        Some(())
    }
}

/// Returns the fields that are texts.
pub(super) fn texts(fields: &serde_json::Map<String, Value>) -> BTreeMap<String, String> {
    fields.iter().filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::example;

    fn format(key: &str, value: &str) -> Result<TemplateFormat, String> {
        TemplateFormat::new(key, value)
    }

    #[test]
    fn what_is_written_is_read() {
        let (service, mut instance) = example();
        for (key, value, id) in [
            (
                "/rpc/${service}/${id}",
                r#"{"addr": "${host}:${port}", "w": "${weight}", "meta": "${metadata}"}"#,
                None,
            ),
            (
                "${service}.at.${host}:${port}",
                r#"{"meta": "${metadata}", "name": "${service}", "v": 1}"#,
                Some("address"),
            ),
            (
                "/urls/${service}/${id}",
                r#"{"url": "http://[${host}]:${port}", "w": "${weight}", "meta": "${metadata}"}"#,
                None,
            ),
            (
                "/${service}/x-${id}-y",
                r#"["${host}", "${port}", {"in": "${metadata}", "w": "w${weight}"}]"#,
                None,
            ),
        ] {
            for host in ["10.0.0.7", "fd00::7"] {
                instance.host = host.to_owned();
                let format = format(key, value).unwrap();
                let (text, stored) = (format.key(&service, &instance), format.value(&service, &instance));
                let text = String::from_utf8(text.unwrap()).unwrap();
                let rest = text.strip_prefix(&format.path(None)).unwrap();
                assert_eq!(format.service(rest), Some("shop"), "{text}");
                let rest = text.strip_prefix(&format.path(Some(&service))).unwrap();
                let weight = if format.has_weight() || value.contains("${weight}") { 2.0 } else { 1.0 };
                let id = id.map_or(instance.id.clone(), |_| format!("{host}:8080"));
                let expected = Instance { id, weight, ..instance.clone() };
                assert_eq!(format.instance(rest, &stored.unwrap()), Some(expected), "{text}");
            }
        }
    }

    #[test]
    fn what_is_not_an_instance_is_not_read() {
        let format =
            format("/${service}/${id}", r#"{"at": "${host}:${port}", "meta": "${metadata}"}"#).unwrap();
        for value in [
            "x",
            "{}",
            r#"{"at": "a", "meta": {}}"#,
            r#"{"at": "a:b", "meta": {}}"#,
            r#"{"at": "a:1", "meta": 1}"#,
        ] {
            assert_eq!(format.instance("id", value.as_bytes()), None, "{value}");
        }
        assert!(format.instance("id", br#"{"at": "a:1", "meta": {}, "more": 1}"#).is_some());
        assert_eq!(format.instance("of/another", br#"{"at": "a:1", "meta": {}}"#), None);
    }

    #[test]
    fn templates_that_cannot_be_used_are_rejected() {
        let value = r#"{"at": "${host}:${port}", "meta": "${metadata}"}"#;
        for (key, value, reason) in [
            ("/a/${id}", value, "${service} must be its first field"),
            ("/a/${id}/${service}", value, "${service} must be its first field"),
            ("/${service}${id}", value, "a text such as /"),
            ("/${service}", value, "a text such as /"),
            ("/${service}/x", value, "each instance has a key of its own"),
            ("/${service}/${host}", value, "each instance has a key of its own"),
            ("/${service}/${host}${port}", value, "between two fields"),
            ("/${service}/${id}/${weight}", value, "may contain ${id}"),
            ("/${service}/${id}", "${host}:${port}", "value: the body is not JSON"),
            ("/${service}/${id}", r#"{"at": "${host}:${port}"}"#, "\"${metadata}\""),
            ("/${service}/${id}", r#"{"meta": "${metadata}"}"#, "${host} and ${port}"),
            ("/${service}/${id}", r#"{"at": "${host}${port}", "meta": "${metadata}"}"#, "between two fields"),
        ] {
            let error = format(key, value).unwrap_err();
            assert!(error.contains(reason), "{key} {value}: {error}");
        }
    }
}
