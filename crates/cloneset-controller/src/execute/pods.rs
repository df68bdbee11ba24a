//! Steps of pods.

use jiff::Timestamp;
use kube::api::{Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use podward_core::cloneset::{Hook, PodStep};
use serde_json::{Value, json};

use super::writes::{Write, writes};
use crate::cache::OwnedCache;
use crate::delete::delete;
use crate::errors::{SetError, call};
use crate::pod::Pod;
use crate::template::{InPlaceChange, Update, next, update};

/// The answer to a delete that Podward holds until all consumers have released the pod.
const HELD: u16 = 429;

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was written.
    Written,
    /// The pod was deleted.
    Deleted,
    /// Podward deletes the pod when all consumers have released it.
    Held,
}

/// An update in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct InPlace<'a> {
    pub(super) change: Option<&'a InPlaceChange>,
    pub(super) revision: &'a str,
    pub(super) grace_seconds: u32,
    pub(super) hook: Option<&'a Hook>,
    pub(super) now: Timestamp,
}

/// Carries out a step. What the API server returns is in the cache afterwards. Calls `moved` when the pod has the state of the
/// step, also if a write that follows fails, and when it is deleted.
///
/// # Errors
/// Fails if a request fails. The writes before it are in the cache.
pub(super) async fn carry_out(
    (client, cache): (&Client, &OwnedCache<Pod>),
    pod: &Pod,
    step: &PodStep,
    in_place: InPlace<'_>,
    moved: impl Fn(),
) -> Result<Outcome, SetError> {
    let object = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    if step.delete {
        let outcome = delete_pod(cache, &api, pod, &object).await?;
        if outcome == Outcome::Deleted {
            moved();
        }
        return Ok(outcome);
    }
    let invalid = |problem: String| SetError::Invalid { object: format!("pod {object}"), problem };
    let InPlace { change, revision, grace_seconds, hook, now } = in_place;
    let patches = match (step.update, step.next_batch) {
        (true, _) => {
            let change = change.cloned().unwrap_or_default();
            Some(update(pod, change, Update { revision, now, grace_seconds }).map_err(invalid)?)
        }
        (false, true) => next(pod, now).map_err(invalid)?,
        (false, false) => None,
    };
    let mut version = None;
    for write in writes(pod, step, hook, patches, now) {
        let has_state = write.has_state();
        let written = write_once(&api, pod, &object, write, version.take()).await?;
        version = written.resource_version();
        cache.store(written);
        if has_state {
            moved();
        }
    }
    Ok(Outcome::Written)
}

async fn write_once(
    api: &Api<Pod>,
    pod: &Pod,
    object: &str,
    write: Write,
    version: Option<String>,
) -> Result<Pod, SetError> {
    let name = pod.name_any();
    let params = PatchParams::default();
    let patch = |mut patch: Value| {
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        Patch::Strategic(patch)
    };
    match write {
        Write::Status(body) => {
            call("write the conditions of pod", object, api.patch_status(&name, &params, &patch(body))).await
        }
        Write::Resize(body) => {
            call("resize pod", object, api.patch_subresource("resize", &name, &params, &patch(body))).await
        }
        Write::Pod(body) => call("write pod", object, api.patch(&name, &params, &patch(body))).await,
    }
}

async fn delete_pod(
    cache: &OwnedCache<Pod>,
    api: &Api<Pod>,
    pod: &Pod,
    object: &str,
) -> Result<Outcome, SetError> {
    let preconditions = Preconditions { uid: pod.uid(), resource_version: pod.resource_version() };
    match delete(api, cache, pod, ("delete pod", object), preconditions).await {
        Ok(()) => Ok(Outcome::Deleted),
        Err(error) if error.code() == Some(HELD) => Ok(Outcome::Held),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use podward_core::cloneset::{OperationStep, State};
    use tower::service_fn;

    use super::*;

    /// An API server to which another writer has changed the pod between the writes of a step.
    fn overtaken() -> Client {
        let service = service_fn(|request: Request<Body>| async move {
            let is_first = !request.uri().path().ends_with("/status");
            let body = match is_first {
                true => {
                    json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "8"}})
                }
                false => json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409}),
            };
            let response = Response::builder().status(if is_first { 200 } else { 409 });
            Ok::<_, Infallible>(response.body(Body::from(body.to_string().into_bytes())).unwrap())
        });
        Client::new(service, "n")
    }

    #[tokio::test]
    async fn a_state_is_reported_when_a_later_write_fails() {
        let pod = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let step = PodStep {
            state: Some(State::Updated),
            operation: Some(OperationStep::Finish),
            update_ready: Some(true),
            ..PodStep::default()
        };
        let in_place =
            InPlace { change: None, revision: "r", grace_seconds: 0, hook: None, now: Timestamp::UNIX_EPOCH };
        let reported = Cell::new(0);
        let moved = || reported.set(reported.get() + 1);
        let failed = carry_out((&overtaken(), &OwnedCache::default()), &pod, &step, in_place, moved).await;
        assert!(failed.unwrap_err().is_outdated());
        assert_eq!(reported.get(), 1);
    }
}
