//! Names of objects of the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, ResourceExt};

use super::candidates::{NamedKind, NamesOf};
use crate::kubectl_args::KubectlArgs;
use crate::object_target::ObjectTarget;

/// A shell waits for the answer.
const LONGEST: Duration = Duration::from_secs(2);
/// The number of objects that are read.
const MOST: u32 = 500;
/// The kinds that `KIND/NAME` can begin with.
const KINDS: [&str; 7] = ["cloneset/", "deploy/", "ds/", "job/", "node/", "rs/", "sts/"];

/// Returns the names that `word` can become. None if the cluster does not answer in time: a completion says no errors.
pub(super) async fn names(of: NamesOf, word: &str) -> Vec<String> {
    let found = tokio::time::timeout(LONGEST, read(&of.flags, of.kind, word)).await;
    let mut found = found.ok().and_then(Result::ok).unwrap_or_default();
    let has_kinds = matches!(of.kind, NamedKind::Object | NamedKind::Workload);
    if has_kinds && !word.contains('/') {
        found.extend(KINDS.map(ToOwned::to_owned));
    }
    found.retain(|name| name.starts_with(word));
    found
}

async fn read(flags: &BTreeMap<String, String>, kind: NamedKind, word: &str) -> anyhow::Result<Vec<String>> {
    let (prefix, resource, namespaced) = match kind {
        NamedKind::Namespace => ("", ApiResource::erase::<Namespace>(&()), false),
        _ => match word.split_once('/') {
            None if kind == NamedKind::Workload => return Ok(Vec::new()),
            None => ("", ApiResource::erase::<Pod>(&()), true),
            Some((before, _)) => {
                let (resource, namespaced) = match ObjectTarget::parse(word)? {
                    ObjectTarget::Pod(_) => (ApiResource::erase::<Pod>(&()), true),
                    ObjectTarget::Node(_) => (ApiResource::erase::<Node>(&()), false),
                    ObjectTarget::Workload(kind, _) => {
                        let (group, version, kind) = kind.api();
                        (ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)), true)
                    }
                };
                (&word[..=before.len()], resource, namespaced)
            }
        },
    };
    let client = KubectlArgs::of_flags(flags).client().await?;
    let api: Api<DynamicObject> = match (namespaced, flags.get("namespace")) {
        (false, _) => Api::all_with(client, &resource),
        (true, Some(namespace)) => Api::namespaced_with(client, namespace, &resource),
        (true, None) => Api::default_namespaced_with(client, &resource),
    };
    let objects = api.list_metadata(&ListParams::default().limit(MOST)).await?;
    Ok(objects.items.iter().map(|object| format!("{prefix}{}", object.name_any())).collect())
}
