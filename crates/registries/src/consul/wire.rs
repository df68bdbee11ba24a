//! The JSON of Consul's HTTP interface.
//!
//! Source: <https://developer.hashicorp.com/consul/api-docs>, and `agent/structs/structs.go` of Consul 1.19.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::{Bounded, Entry, Form, Names, Texts, each, one_or_many};

/// One operation of a transaction: exactly one field is set.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Operation<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<NodeOperation<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service: Option<ServiceOperation<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) check: Option<CheckOperation<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NodeOperation<'a> {
    pub(super) verb: &'static str,
    pub(super) node: Node<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Node<'a> {
    pub(super) node: &'a str,
    pub(super) address: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) partition: &'a str,
    pub(super) meta: BTreeMap<&'static str, &'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ServiceOperation<'a> {
    pub(super) verb: &'static str,
    pub(super) node: &'a str,
    pub(super) service: Service<'a>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Service<'a> {
    #[serde(rename = "ID")]
    pub(super) id: &'a str,
    pub(super) service: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) partition: &'a str,
    pub(super) address: &'a str,
    pub(super) port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meta: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) weights: Option<Weights>,
    pub(super) modify_index: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Weights {
    pub(super) passing: u32,
    pub(super) warning: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CheckOperation<'a> {
    pub(super) verb: &'static str,
    pub(super) check: Check<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Check<'a> {
    pub(super) node: &'a str,
    #[serde(rename = "CheckID")]
    pub(super) check_id: String,
    pub(super) name: &'static str,
    pub(super) status: &'static str,
    pub(super) output: &'static str,
    #[serde(rename = "ServiceID")]
    pub(super) service_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) partition: &'a str,
}

/// The response to a transaction.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TransactionResult {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) errors: Vec<OperationError>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct OperationError {
    pub(super) op_index: usize,
    pub(super) what: String,
}

/// An entry of `/v1/health/service/<name>`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HealthEntry {
    pub(super) node: HealthNode,
    pub(super) service: HealthService,
    #[serde(default)]
    pub(super) checks: HealthChecks,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HealthNode {
    pub(super) node: String,
    #[serde(default)]
    pub(super) address: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HealthService {
    #[serde(rename = "ID")]
    pub(super) id: String,
    #[serde(default)]
    pub(super) address: String,
    #[serde(default)]
    pub(super) port: u16,
    #[serde(default)]
    pub(super) meta: Texts,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) weights: Weights,
    #[serde(default)]
    pub(super) modify_index: u64,
}

impl Entry for HealthEntry {
    fn texts(&self) -> Vec<&str> {
        vec![&self.node.node, &self.node.address, &self.service.id, &self.service.address]
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.service.meta.0
    }
}

/// What the ids of Podward's checks begin with.
pub(super) const CHECK_PREFIX: &str = "podward:";

/// The checks of an instance, of which only that is kept which counts.
#[derive(Debug, Default)]
pub(super) struct HealthChecks {
    pub(super) has_critical: bool,
    /// Whether Podward's own check is critical: those of others change without it.
    pub(super) is_held_out: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HealthCheck {
    #[serde(default, rename = "CheckID")]
    check_id: String,
    #[serde(default)]
    status: String,
}

impl<'de> Deserialize<'de> for HealthChecks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = Self::default();
        each(deserializer, Form::OneOrMany, |check: HealthCheck| {
            let is_critical = check.status == "critical";
            found.has_critical |= is_critical;
            found.is_held_out |= is_critical && check.check_id.starts_with(CHECK_PREFIX);
            Ok(())
        })?;
        Ok(found)
    }
}

/// The response of `/v1/catalog/node-services/<node>`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NodeServices {
    #[serde(default, deserialize_with = "one_or_many")]
    pub(super) services: Bounded<NodeService>,
}

impl Entry for NodeService {
    fn texts(&self) -> Vec<&str> {
        vec![&self.id, &self.service]
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.meta.0
    }
}

/// The same, for the names of the services.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NodeNames {
    #[serde(default)]
    pub(super) services: Names<NodeServiceName>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NodeServiceName {
    pub(super) service: String,
    #[serde(default)]
    pub(super) namespace: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NodeService {
    #[serde(default, rename = "ID")]
    pub(super) id: String,
    pub(super) service: String,
    #[serde(default)]
    pub(super) meta: Texts,
    #[serde(default)]
    pub(super) modify_index: u64,
}

/// Go writes an empty list or map as `null`.
fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
