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
pub(crate) struct InPlace<'a> {
    pub(crate) change: Option<&'a InPlaceChange>,
    pub(crate) revision: &'a str,
    pub(crate) grace_seconds: u32,
    pub(crate) hook: Option<&'a Hook>,
    pub(crate) now: Timestamp,
}

/// Carries out a step. What the API server returns is in the cache afterwards. Calls `moved` when the pod has the state of the
/// step, also if a write that follows fails, and when it is deleted.
///
/// # Errors
/// Fails if a request fails. The writes before it are in the cache.
pub(crate) async fn carry_out(
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
    let writes = writes(pod, step, hook, patches, now);
    check_resize(&api, pod, &object, &writes).await?;
    let mut version = None;
    for write in writes {
        let has_state = write.has_state();
        let params = PatchParams::default();
        let written = write_once(&api, pod, &object, write, version.take(), &params).await?;
        version = written.resource_version();
        cache.store(written);
        if has_state {
            moved();
        }
    }
    Ok(Outcome::Written)
}

/// Has the API server check a resize and the patch that follows it, before anything is written. If the resize is
/// refused, the pod would stay out of service. If a policy refuses the patch, the pod would keep the resize when the
/// template is reverted.
async fn check_resize(api: &Api<Pod>, pod: &Pod, object: &str, writes: &[Write]) -> Result<(), SetError> {
    if !writes.iter().any(|write| matches!(write, Write::Resize(_))) {
        return Ok(());
    }
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    // Nothing comes before the first write.
    for write in writes.iter().skip(1).filter(|write| !matches!(write, Write::Status(_))) {
        write_once(api, pod, object, write.clone(), None, &params).await?;
    }
    Ok(())
}

async fn write_once(
    api: &Api<Pod>,
    pod: &Pod,
    object: &str,
    write: Write,
    version: Option<String>,
    params: &PatchParams,
) -> Result<Pod, SetError> {
    let name = pod.name_any();
    let patch = |mut patch: Value| {
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        Patch::Strategic(patch)
    };
    match write {
        Write::Status(body) => {
            call("write the conditions of pod", object, api.patch_status(&name, params, &patch(body))).await
        }
        Write::Resize(body) => {
            call("resize pod", object, api.patch_subresource("resize", &name, params, &patch(body))).await
        }
        Write::Pod(body) => call("write pod", object, api.patch(&name, params, &patch(body))).await,
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
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use podward_core::cloneset::{OperationStep, State};
    use tower::service_fn;

    use super::*;
    use crate::template::{Change, change};

    /// Returns the requests for an update with a resize, if the API server refuses those whose path has this end: the
    /// end of the path, whether it was a dry run, and the version that it has to find.
    async fn resize(
        refused: &'static str,
        update_ready: Option<bool>,
    ) -> (Result<Outcome, SetError>, Vec<(String, bool, String)>) {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let service = service_fn(move |request: Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let (head, body) = request.into_parts();
                let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
                let last = head.uri.path().rsplit('/').next().unwrap().to_owned();
                let is_dry_run = head.uri.query().is_some_and(|query| query.contains("dryRun=All"));
                let version = body["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                let code = if last == refused { 403 } else { 200 };
                log.lock().push((last, is_dry_run, version));
                let metadata = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "8"});
                let body = match code {
                    200 => json!({"metadata": metadata}),
                    _ => json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": code}),
                };
                let response = Response::builder().status(code);
                Ok::<_, Infallible>(response.body(Body::from(body.to_string().into_bytes())).unwrap())
            }
        });
        let template = |cpu: &str| {
            let container =
                json!({"name": "main", "image": "web:1", "resources": {"requests": {"cpu": cpu}}});
            json!({"metadata": {}, "spec": {"containers": [container]}})
        };
        let Change::InPlace(change) = change(&template("1"), &template("2")) else { panic!() };
        let mut pod = template("1");
        pod["metadata"] = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let step = PodStep { state: Some(State::Updating), update: true, update_ready, ..PodStep::default() };
        let now = Timestamp::UNIX_EPOCH;
        let in_place =
            InPlace { change: Some(&change), revision: "web-2", grace_seconds: 0, hook: None, now };
        let client = Client::new(service, "n");
        let result = carry_out((&client, &OwnedCache::default()), &pod, &step, in_place, || ()).await;
        let requests = requests.lock().clone();
        (result, requests)
    }

    fn requests(expected: &[(&str, bool, &str)]) -> Vec<(String, bool, String)> {
        let request = |(path, is_dry_run, version): &(&str, bool, &str)| {
            ((*path).to_owned(), *is_dry_run, (*version).to_owned())
        };
        expected.iter().map(request).collect()
    }

    /// The pod would keep the resize if the template was reverted.
    #[tokio::test]
    async fn an_update_whose_patch_is_refused_resizes_nothing() {
        let (result, found) = resize("a", None).await;
        let text = result.unwrap_err().to_string();
        assert!(text.starts_with("could not write pod n/a: "), "{text}");
        assert_eq!(found, requests(&[("a", true, "7")]));
        let (result, found) = resize("", None).await;
        assert_eq!(result.unwrap(), Outcome::Written);
        assert_eq!(found, requests(&[("a", true, "7"), ("resize", false, "7"), ("a", false, "8")]));
    }

    #[tokio::test]
    async fn an_update_whose_resize_is_refused_takes_no_pod_out_of_service() {
        let (result, found) = resize("resize", Some(false)).await;
        let text = result.unwrap_err().to_string();
        assert!(text.starts_with("could not resize pod n/a: "), "{text}");
        assert_eq!(found, requests(&[("resize", true, "7")]));
        let (result, found) = resize("", Some(false)).await;
        assert_eq!(result.unwrap(), Outcome::Written);
        let (checks, writes) = found.split_at(2);
        assert_eq!(checks, requests(&[("resize", true, "7"), ("a", true, "7")]));
        assert_eq!(writes, requests(&[("status", false, "7"), ("resize", false, "8"), ("a", false, "8")]));
    }

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
