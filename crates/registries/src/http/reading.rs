//! Instances in responses.

use std::collections::BTreeMap;

use serde_json::Value;

use super::call;
use super::options::{HttpListing, HttpReading};
use super::template::{Scope, Template};
use crate::instance::{Instance, ServiceKey};
use crate::limits::{Exceeded, Instances, MAX_INSTANCES};

/// How the instances of a service are read.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) path: Template,
    /// The statuses that mean that the service does not exist.
    pub(super) missing: Vec<u16>,
    instances: String,
    host: String,
    port: String,
    id: Option<String>,
    cluster: Option<String>,
    weight: Option<String>,
    in_service: Option<String>,
    metadata: Option<String>,
    in_service_value: String,
}

impl Reading {
    /// # Errors
    /// Fails with a message for people that says which option is unusable.
    pub(super) fn new(options: &HttpReading) -> Result<Self, String> {
        let mut fields = options.fields.clone();
        for (name, pointer) in &fields {
            check_pointer(pointer).map_err(|error| format!("field {name}: {error}"))?;
        }
        check_pointer(&options.instances)?;
        let mut field = |name: &str| fields.remove(name);
        let needed = |name: &str| format!("field {name} is missing: the JSON pointer to it in an instance");
        let reading = Self {
            path: call::path(&options.path, Scope::Service)?,
            missing: options.missing.clone(),
            instances: options.instances.clone(),
            host: field("host").ok_or_else(|| needed("host"))?,
            port: field("port").ok_or_else(|| needed("port"))?,
            id: field("id"),
            cluster: field("cluster"),
            weight: field("weight"),
            in_service: field("inService"),
            metadata: field("metadata"),
            in_service_value: match options.in_service_value.as_str() {
                "" => "true".to_owned(),
                value => value.to_owned(),
            },
        };
        match fields.keys().next() {
            Some(name) => Err(format!(
                "there is no field {name:?}; the fields are id, host, port, cluster, weight, inService and metadata"
            )),
            None => Ok(reading),
        }
    }

    pub(super) fn has_id(&self) -> bool {
        self.id.is_some()
    }

    pub(super) fn has_weight(&self) -> bool {
        self.weight.is_some()
    }

    pub(super) fn has_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    pub(super) fn has_in_service(&self) -> bool {
        self.in_service.is_some()
    }

    /// Returns the instances in a response.
    ///
    /// # Errors
    /// Fails with a message for people if the response is not of the form that the pointers describe: an instance that
    /// cannot be read is never one that does not exist.
    pub(super) fn instances(&self, response: &Value) -> Result<Vec<Instance>, String> {
        let entries = array(response, &self.instances)?;
        let read = |(index, entry)| {
            self.instance(entry).map_err(|error| format!("instance {index} of the response: {error}"))
        };
        let mut instances = Instances::default();
        for entry in entries.iter().enumerate() {
            instances.push(read(entry)?).map_err(|exceeded| exceeded.to_string())?;
        }
        Ok(instances.into_vec())
    }

    fn instance(&self, entry: &Value) -> Result<Instance, String> {
        let host = text_at(entry, &self.host)?;
        let port = text_at(entry, &self.port)?;
        let port = port.parse().ok().filter(|port| *port > 0);
        let port: u16 = port.ok_or_else(|| format!("no port at {:?}", self.port))?;
        let optional = |pointer: &Option<String>| match pointer {
            Some(pointer) => text_at(entry, pointer).map(Some),
            None => Ok(None),
        };
        let weight = match optional(&self.weight)? {
            Some(text) => text.parse().ok().filter(|weight: &f64| weight.is_finite() && *weight >= 0.0),
            None => Some(1.0),
        };
        Ok(Instance {
            id: optional(&self.id)?.unwrap_or_else(|| format!("{host}:{port}")),
            host,
            port,
            cluster: match &self.cluster {
                Some(pointer) if entry.pointer(pointer).is_some_and(|value| !value.is_null()) => {
                    text_at(entry, pointer)?
                }
                _ => String::new(),
            },
            weight: weight.ok_or_else(|| "the weight is not a number from 0 on".to_owned())?,
            metadata: self.metadata(entry)?,
            in_service: optional(&self.in_service)?.is_none_or(|value| value == self.in_service_value),
            may_return: false,
            version: None,
        })
    }

    fn metadata(&self, entry: &Value) -> Result<BTreeMap<String, String>, String> {
        let Some(pointer) = &self.metadata else { return Ok(BTreeMap::new()) };
        match entry.pointer(pointer) {
            None | Some(Value::Null) => Ok(BTreeMap::new()),
            Some(Value::Object(fields)) => {
                // Ours are texts. What is below others is not shown.
                Ok(fields.iter().filter_map(|(key, value)| Some((key.clone(), scalar(value)?))).collect())
            }
            Some(_) => Err(format!("what is at {pointer:?} is not an object")),
        }
    }
}

/// How the services are listed.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) path: Template,
    services: String,
    name: String,
}

impl Listing {
    /// # Errors
    /// Fails with a message for people that says which option is unusable.
    pub(super) fn new(options: &HttpListing) -> Result<Self, String> {
        check_pointer(&options.services)?;
        check_pointer(&options.name)?;
        let path = call::path(&options.path, Scope::Nothing)?;
        Ok(Self { path, services: options.services.clone(), name: options.name.clone() })
    }

    /// Returns the services in a response, as [`Reading::instances`] does.
    pub(super) fn services(&self, response: &Value) -> Result<Vec<ServiceKey>, String> {
        let read = |(index, entry)| {
            let name = text_at(entry, &self.name);
            let name = name.map_err(|error| format!("service {index} of the response: {error}"))?;
            Ok(ServiceKey { name, ..ServiceKey::default() })
        };
        let entries = array(response, &self.services)?;
        if entries.len() > MAX_INSTANCES {
            return Err(Exceeded::Names.to_string());
        }
        entries.iter().enumerate().map(read).collect()
    }
}

/// RFC 6901.
fn check_pointer(pointer: &str) -> Result<(), String> {
    let is_valid = pointer.is_empty() || pointer.starts_with('/');
    if is_valid { Ok(()) } else { Err(format!("{pointer:?} is not a JSON pointer: it must begin with '/'")) }
}

fn array<'a>(response: &'a Value, pointer: &str) -> Result<&'a Vec<Value>, String> {
    let found = response.pointer(pointer).and_then(Value::as_array);
    found.ok_or_else(|| format!("the response has no array at {pointer:?}"))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

fn text_at(entry: &Value, pointer: &str) -> Result<String, String> {
    let text = entry.pointer(pointer).and_then(scalar).filter(|text| !text.is_empty());
    text.ok_or_else(|| format!("there is no text or number at {pointer:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reading(fields: &[(&str, &str)]) -> HttpReading {
        HttpReading {
            path: "/s/${service}".to_owned(),
            instances: "/data/hosts".to_owned(),
            fields: fields.iter().map(|(name, at)| ((*name).to_owned(), (*at).to_owned())).collect(),
            ..HttpReading::default()
        }
    }

    #[test]
    fn instances_are_read() {
        let options = HttpReading {
            in_service_value: "UP".to_owned(),
            ..reading(&[
                ("id", "/id"),
                ("host", "/at/0"),
                ("port", "/at/1"),
                ("cluster", "/c"),
                ("weight", "/w"),
                ("inService", "/status"),
                ("metadata", "/meta"),
            ])
        };
        let response = json!({"data": {"hosts": [
            {"id": 7, "at": ["10.0.0.7", 80], "w": 2, "c": "x", "status": "UP", "meta": {"a": "b", "n": 1, "o": {}}},
            {"id": "8", "at": ["10.0.0.8", "81"], "w": "0.5", "status": "DOWN", "meta": null},
        ]}});
        let found = Reading::new(&options).unwrap().instances(&response).unwrap();
        let of = |id: &str, host: &str, port, cluster: &str, weight, in_service| Instance {
            id: id.to_owned(),
            host: host.to_owned(),
            port,
            cluster: cluster.to_owned(),
            weight,
            metadata: BTreeMap::new(),
            in_service,
            may_return: false,
            version: None,
        };
        let metadata = [("a", "b"), ("n", "1")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let first = Instance { metadata, ..of("7", "10.0.0.7", 80, "x", 2.0, true) };
        assert_eq!(found, [first, of("8", "10.0.0.8", 81, "", 0.5, false)]);

        let known_by_address = Reading::new(&reading(&[("host", "/at/0"), ("port", "/at/1")])).unwrap();
        let found = known_by_address.instances(&response).unwrap();
        assert_eq!(found[0], of("10.0.0.7:80", "10.0.0.7", 80, "", 1.0, true));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_not_absence() {
        let reading = Reading::new(&reading(&[
            ("host", "/h"),
            ("port", "/p"),
            ("inService", "/up"),
            ("metadata", "/m"),
        ]));
        let reading = reading.unwrap();
        for response in [
            json!(null),
            json!([]),
            json!({"data": {}}),
            json!({"data": {"hosts": null}}),
            json!({"data": {"hosts": {}}}),
            json!({"data": {"hosts": [null]}}),
            json!({"data": {"hosts": [{"h": "a", "p": 1}]}}),
            json!({"data": {"hosts": [{"h": "", "p": 1, "up": true}]}}),
            json!({"data": {"hosts": [{"h": "a", "p": 0, "up": true}]}}),
            json!({"data": {"hosts": [{"h": "a", "p": 65_536, "up": true}]}}),
            json!({"data": {"hosts": [{"h": "a", "p": -1, "up": true}]}}),
            json!({"data": {"hosts": [{"h": ["a"], "p": 1, "up": true}]}}),
            json!({"data": {"hosts": [{"h": "a", "p": 1, "up": true, "m": "x"}]}}),
            json!({"data": {"hosts": [{"h": "a", "p": 1, "up": true}, 5]}}),
        ] {
            assert!(reading.instances(&response).is_err(), "{response}");
        }
        assert_eq!(reading.instances(&json!({"data": {"hosts": []}})), Ok(Vec::new()));
    }

    #[test]
    fn services_are_read() {
        let listing = |services: &str, name: &str| {
            let listing = HttpListing { path: "/s".into(), services: services.into(), name: name.into() };
            Listing::new(&listing).unwrap()
        };
        let names = |found: Vec<ServiceKey>| found.into_iter().map(|key| key.name).collect::<Vec<_>>();
        let plain = listing("", "").services(&json!(["a", "b"])).unwrap();
        assert_eq!(names(plain), ["a", "b"]);
        let deep = listing("/x", "/name").services(&json!({"x": [{"name": "a"}]})).unwrap();
        assert_eq!(names(deep), ["a"]);
        assert!(listing("", "").services(&json!({})).is_err());
        assert!(listing("", "").services(&json!(["a", null])).is_err());
    }

    #[test]
    fn wrong_options_are_rejected_with_the_reason() {
        for (fields, reason) in [
            (vec![("port", "/p")], "field host is missing"),
            (vec![("host", "/h")], "field port is missing"),
            (vec![("host", "/h"), ("port", "p")], "field port: \"p\" is not a JSON pointer"),
            (vec![("host", "/h"), ("port", "/p"), ("name", "/n")], "no field \"name\""),
        ] {
            let error = Reading::new(&reading(&fields)).unwrap_err();
            assert!(error.contains(reason), "{fields:?}: {error}");
        }
        let path = HttpReading { path: "/${id}".to_owned(), ..reading(&[("host", "/h"), ("port", "/p")]) };
        assert!(Reading::new(&path).unwrap_err().contains("can be named here"));
    }
}
