//! The status of a binding.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use podward_api::discovery_binding::{BINDING_FINALIZERS, BindingStatus, HeldRemovals};
use podward_api::{DiscoveryBinding, shortened};
use podward_runtime::retry::{ApiCallError, api_call};
use serde_json::json;

use crate::model::BindingKey;

/// The longest message of a condition or error.
const MAX_TEXT: usize = 512;

/// What the task of a binding knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct BindingReport {
    pub(crate) generation: Option<i64>,
    /// Why the binding or its connection cannot be used.
    pub(crate) rejected: Option<String>,
    /// Why an address of the registry does not answer.
    pub(crate) unreachable: Option<String>,
    /// Why the hook is not attached.
    pub(crate) detached: Option<String>,
    /// The first problem of a pod.
    pub(crate) problem: Option<String>,
    pub(crate) wanted: usize,
    pub(crate) present: usize,
    pub(crate) drifted: usize,
    pub(crate) held: Option<HeldRemovals>,
    pub(crate) replica: String,
}

impl BindingReport {
    /// Returns the status. The transition times of `before` stay where nothing changes.
    pub(crate) fn status(&self, before: Option<&BindingStatus>) -> BindingStatus {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let state = |problem: &Option<String>| match problem {
            None => ("True", String::new()),
            Some(text) => ("False", shortened(text, MAX_TEXT)),
        };
        let (accepted, why_rejected) = state(&self.rejected);
        let (reachable, why_unreachable) = match (&self.rejected, &self.unreachable) {
            (Some(_), _) => ("Unknown", "the registry is not called".to_owned()),
            (None, problem) => state(problem),
        };
        let problem = match (&self.rejected, &self.unreachable, &self.detached, &self.held, &self.problem) {
            (Some(_), ..) => Some("the binding is not accepted".to_owned()),
            (_, Some(_), ..) => Some("an address of the registry does not answer".to_owned()),
            (_, _, Some(text), ..) => Some(format!("the hook of the binding is not attached: {text}")),
            (_, _, _, Some(held), _) => Some(held.reason.clone()),
            (.., Some(text)) => Some(text.clone()),
            _ if self.drifted > 0 => Some(format!("others have changed {} instances", self.drifted)),
            _ if self.present != self.wanted => {
                Some(format!("{} of {} instances are present", self.present, self.wanted))
            }
            _ => None,
        };
        let (synchronized, why_not) = state(&problem);
        let (attached, why_detached) = state(&self.detached);
        let conditions = [
            ("Accepted", accepted, if accepted == "True" { "Valid" } else { "Invalid" }, why_rejected),
            (
                "Reachable",
                reachable,
                if reachable == "True" { "Answers" } else { "NoAnswer" },
                why_unreachable,
            ),
            ("Attached", attached, if attached == "True" { "Attached" } else { "NotAttached" }, why_detached),
            (
                "Synchronized",
                synchronized,
                if synchronized == "True" { "AsWanted" } else { "Differs" },
                why_not,
            ),
        ];
        let conditions = conditions.map(|(kind, status, reason, message)| {
            let known = before.and_then(|before| before.conditions.iter().find(|known| known.type_ == kind));
            let same = known.filter(|known| known.status == status);
            Condition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                observed_generation: self.generation,
                last_transition_time: same
                    .map_or_else(|| Time(Timestamp::now()), |known| known.last_transition_time.clone()),
            }
        });
        let held = self.held.clone().map(|held| {
            let known = before.and_then(|before| before.held_removals.clone());
            let since = known.filter(|known| known.id == held.id).and_then(|known| known.since);
            HeldRemovals { since: since.or_else(|| Some(Time(Timestamp::now()))), ..held }
        });
        let error = self.rejected.as_ref().or(self.unreachable.as_ref()).or(self.problem.as_ref());
        BindingStatus {
            observed_generation: self.generation,
            conditions: conditions.into(),
            wanted: count(self.wanted),
            present: count(self.present),
            drifted: count(self.drifted),
            held_removals: held,
            last_error: error.map(|text| shortened(text, MAX_TEXT)),
            replica: Some(self.replica.clone()),
        }
    }
}

/// Writes the status of `object`, if it differs from the stored one.
///
/// # Errors
/// Fails if the API server refuses it or does not answer.
pub(crate) async fn write(
    client: &Client,
    object: &DiscoveryBinding,
    status: &BindingStatus,
) -> Result<(), ApiCallError> {
    if object.status.as_ref() == Some(status) {
        return Ok(());
    }
    let mut patch = json!({"metadata": {"uid": object.uid()}, "status": status});
    // A merge patch removes only what is null.
    if let Some(fields) = patch["status"].as_object_mut() {
        for field in ["heldRemovals", "lastError"] {
            fields.entry(field).or_insert(serde_json::Value::Null);
        }
    }
    let bindings: Api<DiscoveryBinding> =
        Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let params = PatchParams::default();
    let patch = Patch::Merge(&patch);
    api_call(bindings.patch_status(&object.name_any(), &params, &patch)).await.map(drop)
}

/// Returns whether a binding has a finalizer.
pub(crate) fn has_finalizer(object: &DiscoveryBinding, name: &str) -> bool {
    object.finalizers().iter().any(|known| known == name)
}

/// Adds finalizers to a binding.
///
/// # Errors
/// Fails if the API server refuses it or does not answer.
pub(crate) async fn add_finalizers(
    client: &Client,
    object: &DiscoveryBinding,
    names: &[&str],
) -> Result<(), ApiCallError> {
    let missing = names.iter().filter(|name| !has_finalizer(object, name));
    let all = object.finalizers().iter().cloned().chain(missing.map(|name| (*name).to_owned()));
    set_finalizers(client, object, all.collect()).await
}

/// Removes Podward's finalizers from a binding.
///
/// # Errors
/// Fails if the API server refuses it or does not answer.
pub(crate) async fn remove_finalizers(
    client: &Client,
    object: &DiscoveryBinding,
) -> Result<(), ApiCallError> {
    let of_others = object.finalizers().iter().filter(|name| !BINDING_FINALIZERS.contains(&name.as_str()));
    set_finalizers(client, object, of_others.cloned().collect()).await
}

async fn set_finalizers(
    client: &Client,
    object: &DiscoveryBinding,
    finalizers: Vec<String>,
) -> Result<(), ApiCallError> {
    if finalizers == object.finalizers() {
        return Ok(());
    }
    let version = object.resource_version();
    let patch =
        json!({"metadata": {"uid": object.uid(), "resourceVersion": version, "finalizers": finalizers}});
    let key = BindingKey { namespace: object.namespace().unwrap_or_default(), name: object.name_any() };
    let bindings: Api<DiscoveryBinding> = Api::namespaced(client.clone(), &key.namespace);
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    api_call(bindings.patch(&key.name, &params, &patch)).await.map(drop)
}
