//! The Lease of a slot. Every write has its resource version as precondition, so that a slot never has two owners.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::model::{EXPIRY, Slot};

/// The label of the Leases of the slots. Its value also begins their names.
pub(super) const LABEL: (&str, &str) = ("podward.io/member-of", "service-discovery-bridge");

/// The longest time of a write. It is shorter than the interval of renewals.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the slot of a Lease.
pub(super) fn slot(lease: &Lease) -> Slot {
    let spec = lease.spec.as_ref();
    Slot {
        name: lease.name_any(),
        holder: spec.and_then(|spec| spec.holder_identity.clone()).filter(|holder| !holder.is_empty()),
        renewed: spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0),
        version: lease.resource_version().unwrap_or_default(),
    }
}

/// Creates the Lease of a slot, and returns it. If it exists, as another replica was faster, it only gets its label.
///
/// # Errors
/// Fails if the API server refuses it or does not answer.
pub(super) async fn create(leases: &Api<Lease>, name: &str) -> kube::Result<Lease> {
    let labels = json!({LABEL.0: LABEL.1});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "labels": labels},
    });
    // Not a POST: its request does not contain the name, so no Role could limit the right to the names of the slots.
    patch(leases, name, &PatchParams::apply(LABEL.1), &Patch::Apply(lease)).await
}

/// Takes or renews a slot.
///
/// # Errors
/// Fails if the API server refuses it or does not answer. 409: somebody else was faster.
pub(super) async fn hold(leases: &Api<Lease>, slot: &Slot, holder: &str, takes: bool) -> kube::Result<Lease> {
    let now = MicroTime(Timestamp::now());
    let mut spec =
        json!({"holderIdentity": holder, "leaseDurationSeconds": EXPIRY.as_secs(), "renewTime": now});
    if takes {
        spec["acquireTime"] = json!(now);
    }
    write(leases, slot, spec).await
}

/// Releases a Lease.
///
/// # Errors
/// Fails if the API server refuses it or does not answer.
pub(super) async fn give_back(leases: &Api<Lease>, slot: &Slot) -> kube::Result<Lease> {
    write(leases, slot, json!({"holderIdentity": null, "acquireTime": null, "renewTime": null})).await
}

async fn write(leases: &Api<Lease>, slot: &Slot, spec: Value) -> kube::Result<Lease> {
    let body = Patch::Merge(json!({"metadata": {"resourceVersion": slot.version}, "spec": spec}));
    patch(leases, &slot.name, &PatchParams::default(), &body).await
}

async fn patch(
    leases: &Api<Lease>,
    name: &str,
    params: &PatchParams,
    body: &Patch<Value>,
) -> kube::Result<Lease> {
    match tokio::time::timeout(TIMEOUT, leases.patch(name, params, body)).await {
        Ok(result) => result,
        Err(_) => Err(kube::Error::Service(format!("no answer within {TIMEOUT:?}").into())),
    }
}
