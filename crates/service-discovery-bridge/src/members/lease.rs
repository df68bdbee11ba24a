//! The Lease of a slot. Every write has its resource version as precondition, so that a slot never has two owners.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::model::{EXPIRY, Slot};

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
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": slot.version}, "spec": spec}));
    let params = PatchParams::default();
    match tokio::time::timeout(TIMEOUT, leases.patch(&slot.name, &params, &patch)).await {
        Ok(result) => result,
        Err(_) => Err(kube::Error::Service(format!("no answer within {TIMEOUT:?}").into())),
    }
}
