//! What the nodes at an address mean.

use std::collections::BTreeSet;

use crate::instance::{Instance, InstanceVersion};

use super::super::dubbo_url::DubboUrl;
use super::super::packets::Stat;
use super::checks::{RESERVED, WEIGHT};

/// A node below `providers`.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) url: DubboUrl,
    pub(super) stat: Stat,
}

/// URLs, with the names of their nodes.
pub(super) type Urls = Vec<(String, DubboUrl)>;

pub(super) fn is_ours(provider: &Provider) -> bool {
    !provider.stat.is_ephemeral && instance_of(provider).is_some_and(|present| present.owner().is_some())
}

/// Returns the instance of the nodes at one address. `None` if there are no nodes.
pub(super) fn merged(at: &[&Provider], overrides: &Urls) -> Option<Instance> {
    // One of ours says whose the address is.
    let first = at.iter().find(|provider| is_ours(provider)).or_else(|| at.first())?;
    let mut instance = instance_of(first)?;
    instance.in_service = at.iter().any(|provider| is_in_service(&provider.url, overrides));
    instance.version = Some(version(at.iter().copied()));
    Some(instance)
}

fn is_in_service(url: &DubboUrl, overrides: &Urls) -> bool {
    url.is_enabled() && !(url.is_overridden() && overrides.iter().any(|(_, by)| by.disables(url)))
}

/// Returns whether `url` is in service, and no provider of its service at another address is.
pub(super) fn is_last(url: &DubboUrl, all: &Urls, overrides: &Urls) -> bool {
    let is_another = |other: &DubboUrl| {
        (&other.host, other.port) != (&url.host, url.port)
            && ["group", "version"].into_iter().all(|key| other.parameter(key) == url.parameter(key))
            && is_in_service(other, overrides)
    };
    is_in_service(url, overrides) && !all.iter().any(|(_, other)| is_another(other))
}

/// Returns the instance of one node, without overrides.
pub(super) fn instance_of(provider: &Provider) -> Option<Instance> {
    let Provider { url, .. } = provider;
    let weight = url.parameter("weight").and_then(|text| text.parse::<f64>().ok()).unwrap_or(WEIGHT);
    let mut metadata = url.parameters.clone();
    metadata.retain(|key, _| !RESERVED.contains(&key.as_str()));
    Some(Instance {
        id: format!("{}:{}", url.host, url.port),
        host: url.host.clone(),
        port: url.port,
        cluster: String::new(),
        weight: if weight.is_finite() { weight.max(0.0) / WEIGHT } else { 1.0 },
        metadata,
        in_service: url.is_enabled(),
        may_return: false,
        version: None,
    })
}

/// Returns a number for the nodes at an address. The data of a node means nothing, so only other nodes are another version.
pub(super) fn version<'a>(at: impl IntoIterator<Item = &'a Provider>) -> InstanceVersion {
    let created: BTreeSet<i64> = at.into_iter().map(|provider| provider.stat.created).collect();
    let number = created.into_iter().fold(0_u64, |number, transaction| {
        number.wrapping_mul(1_000_003).wrapping_add(transaction.unsigned_abs())
    });
    InstanceVersion(number)
}
