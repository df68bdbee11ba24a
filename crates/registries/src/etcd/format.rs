//! How an instance is stored: in the format of `go.etcd.io/etcd/client/v3/naming/endpoints`, or by templates.
//!
//! A template is also read backwards, so that what is stored is compared with what it should be. Therefore the value has to
//! contain all metadata: it says whose the instance is.

mod template;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::instance::{Instance, ServiceKey};
use crate::owner::Owner;

pub(super) use self::template::PodKey;

use self::template::{TemplateFormat, texts};

/// How instances are stored.
#[derive(Clone, Debug)]
pub(super) enum Format {
    /// `<prefix>/<service>/<id>`, with an [`EndpointValue`]. The prefix has no slash at its end.
    Endpoints {
        prefix: String,
    },
    Template(Box<TemplateFormat>),
}

/// The value of a key.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct EndpointValue {
    #[serde(default)]
    op: u8,
    addr: String,
    #[serde(default)]
    metadata: Option<serde_json::Value>,
}

impl Format {
    /// `template` is a key and a value.
    ///
    /// # Errors
    /// Fails with a message for people that says what is wrong with a template.
    pub(super) fn new(prefix: &str, template: Option<(&str, &str)>) -> Result<Self, String> {
        let prefix = prefix.trim_end_matches('/').to_owned();
        match template {
            None => Ok(Self::Endpoints { prefix }),
            Some(_) if !prefix.is_empty() => {
                Err("a template has the whole key: do not set a prefix".to_owned())
            }
            Some((key, value)) => Ok(Self::Template(Box::new(TemplateFormat::new(key, value)?))),
        }
    }

    /// Returns true if the key contains the address of an instance instead of its id.
    pub(super) fn by_address(&self) -> bool {
        matches!(self, Self::Template(template) if template.by_address())
    }

    /// Returns true if an instance with another address may have another key with its id.
    pub(super) fn may_move(&self) -> bool {
        matches!(self, Self::Template(template) if template.may_move())
    }

    /// Returns true if the value contains the weight.
    pub(super) fn has_weight(&self) -> bool {
        matches!(self, Self::Template(template) if template.has_weight())
    }

    /// What the keys of a service begin with, or those of all services.
    pub(super) fn path(&self, service: Option<&ServiceKey>) -> String {
        match (self, service) {
            (Self::Template(template), service) => template.path(service),
            (Self::Endpoints { prefix }, Some(service)) if prefix.is_empty() => format!("{}/", service.name),
            (Self::Endpoints { prefix }, Some(service)) => format!("{prefix}/{}/", service.name),
            (Self::Endpoints { prefix }, None) if prefix.is_empty() => String::new(),
            (Self::Endpoints { prefix }, None) => format!("{prefix}/"),
        }
    }

    /// Returns the key of an instance.
    ///
    /// # Errors
    /// Fails with a message for people if the instance cannot have one.
    pub(super) fn key(&self, service: &ServiceKey, instance: &Instance) -> Result<Vec<u8>, String> {
        if service.name.is_empty() {
            return Err("the name of the service is empty".to_owned());
        }
        match self {
            Self::Template(template) => template.key(service, instance),
            // A slash in an id would make it the instance of another service.
            Self::Endpoints { .. } if instance.id.is_empty() || instance.id.contains('/') => {
                Err(format!("the id {:?} of an instance must not be empty or contain '/'", instance.id))
            }
            Self::Endpoints { .. } => Ok(format!("{}{}", self.path(Some(service)), instance.id).into_bytes()),
        }
    }

    /// Returns the value of an instance.
    ///
    /// # Errors
    /// Fails with a message for people if the instance lacks a field.
    pub(super) fn value(&self, service: &ServiceKey, instance: &Instance) -> Result<Vec<u8>, String> {
        match self {
            Self::Template(template) => template.value(service, instance),
            Self::Endpoints { .. } => {
                let host = match instance.host.contains(':') {
                    true => format!("[{}]", instance.host),
                    false => instance.host.clone(),
                };
                let metadata = serde_json::to_value(&instance.metadata).map_err(|error| error.to_string())?;
                let addr = format!("{host}:{}", instance.port);
                serde_json::to_vec(&EndpointValue { op: 0, addr, metadata: Some(metadata) })
                    .map_err(|error| error.to_string())
            }
        }
    }

    /// Returns the name of the service of a key. `rest` is what follows the path of all services.
    pub(super) fn service<'k>(&self, rest: &'k str) -> Option<&'k str> {
        match self {
            Self::Template(template) => template.service(rest),
            Self::Endpoints { .. } => Some(rest.rsplit_once('/')?.0),
        }
    }

    /// Returns what a key says of an instance, if it may be that of a pod. `rest` is what follows the path of its service.
    /// Others may store something else beside the instances.
    pub(super) fn pod_key(&self, rest: &str) -> Option<PodKey> {
        match self {
            Self::Template(template) => template.pod_key(rest),
            Self::Endpoints { .. } => {
                let may_be = !rest.contains('/') && Owner::pod_in_id(rest).is_some();
                may_be.then(|| PodKey { id: rest.to_owned(), host: None, port: None })
            }
        }
    }

    /// Returns the instance that is stored. `rest` is what follows the path of its service. `None` if it is none.
    pub(super) fn instance(&self, rest: &str, value: &[u8]) -> Option<Instance> {
        if let Self::Template(template) = self {
            return template.instance(rest, value);
        }
        // Further slashes belong to the name of another service.
        if rest.contains('/') {
            return None;
        }
        let value: EndpointValue = serde_json::from_slice(value).ok()?;
        let (host, port) = value.addr.rsplit_once(':')?;
        let metadata: BTreeMap<String, String> = match value.metadata {
            Some(serde_json::Value::Object(fields)) => texts(&fields),
            _ => BTreeMap::new(),
        };
        Some(Instance {
            id: rest.to_owned(),
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: port.parse().ok()?,
            cluster: String::new(),
            weight: 1.0,
            metadata,
            in_service: true,
            may_return: false,
            version: None,
        })
    }
}
