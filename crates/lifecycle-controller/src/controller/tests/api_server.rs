//! A stand-in for the parts of an API server that a leader uses: pods, events, a namespace, and empty lists of
//! everything else.
//!
//! It also acts as the kubelet: the condition Ready follows the readiness gate.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use podward_core::keys::{CONTROL_LABEL, SERVICE_READY_GATE};
use podward_support::api_answers::{Answer, failure, json_answer};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::TIMEOUT;

/// The server. Clones share its state.
#[derive(Clone)]
pub(super) struct ApiServer {
    /// Every version of every pod, in order.
    versions: Arc<watch::Sender<Vec<Value>>>,
    state: Arc<Mutex<ServerState>>,
}

#[derive(Default)]
struct ServerState {
    /// The names of the pods of each PATCH that was answered with success.
    patches: Vec<String>,
    /// The number of GET requests for single pods.
    reads: usize,
    events: Vec<Value>,
    /// Owners of pods, by path.
    owners: HashMap<String, Value>,
    /// The answer to each PATCH of the pod with this name.
    rejects: Option<(String, StatusCode)>,
    /// Whether another writer changes a pod before the next PATCH.
    is_disturbed: bool,
    /// The resource whose lists and watches are forbidden.
    forbidden: Option<&'static str>,
    /// Whether lists of pods are not answered.
    holds_lists: bool,
    /// The names of pods whose PATCHes are not answered have this prefix.
    holds_writes: Option<String>,
}

impl ApiServer {
    pub(super) fn new() -> Self {
        ApiServer { versions: Arc::new(watch::channel(Vec::new()).0), state: Arc::default() }
    }

    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::new(service, "shop")
    }

    /// Stores a new version of a pod.
    pub(super) fn put(&self, mut pod: Value) -> Value {
        self.versions.send_modify(|versions| {
            pod["metadata"]["resourceVersion"] = json!((versions.len() + 1).to_string());
            versions.push(pod.clone());
        });
        pod
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        self.versions.borrow().iter().rev().find(|pod| pod["metadata"]["name"] == name).cloned()
    }

    /// Waits until the pod `name` meets the `condition` and returns it.
    pub(super) async fn until(&self, name: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let mut versions = self.versions.subscribe();
        let met = || self.get(name).filter(|pod| condition(pod));
        let wait = async {
            while met().is_none() {
                versions.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(TIMEOUT, wait).await.is_err() {
            panic!("pod {name} never met the condition: {:#}", self.get(name).unwrap_or_default());
        }
        met().unwrap()
    }

    /// Waits until an event with this reason was stored and returns its note.
    pub(super) async fn event(&self, reason: &str) -> String {
        let found = || {
            let state = self.state.lock();
            let event = state.events.iter().find(|event| event["reason"] == reason);
            event.map(|event| event["note"].as_str().unwrap_or_default().to_owned())
        };
        let wait = async {
            loop {
                if let Some(note) = found() {
                    return note;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("there was no event {reason}"))
    }

    /// Returns the number of events with this reason about the pod `name`.
    pub(super) fn count_events(&self, reason: &str, name: &str) -> usize {
        let is_it = |event: &&Value| event["reason"] == reason && event["regarding"]["name"] == name;
        self.state.lock().events.iter().filter(is_it).count()
    }

    /// Stores the owner of pods at this path.
    pub(super) fn put_owner(&self, path: &str, owner: Value) {
        self.state.lock().owners.insert(path.to_owned(), owner);
    }

    /// The number of successful writes to the pod `name`.
    pub(super) fn writes(&self, name: &str) -> usize {
        self.state.lock().patches.iter().filter(|patched| *patched == name).count()
    }

    /// The number of reads of single pods.
    pub(super) fn reads(&self) -> usize {
        self.state.lock().reads
    }

    /// Another writer changes the pod of the next PATCH before that PATCH.
    pub(super) fn disturb(&self) {
        self.state.lock().is_disturbed = true;
    }

    /// Rejects each PATCH of the pod `name`.
    pub(super) fn reject(&self, name: &str, status: StatusCode) {
        self.state.lock().rejects = Some((name.to_owned(), status));
    }

    /// Forbids lists and watches of all objects of a resource.
    pub(super) fn forbid(&self, resource: &'static str) {
        self.state.lock().forbidden = Some(resource);
    }

    /// Does not answer lists of pods.
    pub(super) fn hold_lists(&self) {
        self.state.lock().holds_lists = true;
    }

    /// Does not answer PATCHes of pods whose names have this prefix.
    pub(super) fn hold_writes(&self, prefix: &str) {
        self.state.lock().holds_writes = Some(prefix.to_owned());
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query = head.uri.query().unwrap_or_default();
        let owner = self.state.lock().owners.get(head.uri.path()).cloned();
        if let Some(owner) = owner {
            return json_answer(&owner);
        }
        let path: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
        if self.state.lock().forbidden.is_some_and(|resource| path == ["api", "v1", resource]) {
            return failure(StatusCode::FORBIDDEN, "Forbidden");
        }
        match (head.method, path.as_slice()) {
            (Method::GET, ["api", "v1", "pods"]) if query.contains("watch=true") => self.watch(query),
            (Method::GET, ["api", "v1", "pods"]) => {
                if self.state.lock().holds_lists {
                    std::future::pending::<()>().await;
                }
                self.list(query)
            }
            (Method::GET, ["api", "v1", "namespaces", _, "pods"]) => self.list(""),
            (Method::GET, ["api", "v1", "namespaces", _, "pods", name]) => {
                self.state.lock().reads += 1;
                self.get(name)
                    .map_or_else(|| failure(StatusCode::NOT_FOUND, "NotFound"), |pod| json_answer(&pod))
            }
            (Method::PATCH, ["api", "v1", "namespaces", _, "pods", name, "status"]) => {
                let is_held =
                    self.state.lock().holds_writes.as_ref().is_some_and(|prefix| name.starts_with(prefix));
                if is_held {
                    std::future::pending::<()>().await;
                }
                self.patch(name, &serde_json::from_slice(&body).unwrap())
            }
            (Method::POST, [.., "events"]) => {
                let event: Value = serde_json::from_slice(&body).unwrap();
                self.state.lock().events.push(event.clone());
                json_answer(&event)
            }
            (Method::GET, _) if query.contains("watch=true") => {
                let frames = stream::pending::<Result<Frame<Bytes>, Infallible>>();
                Response::new(StreamBody::new(frames).boxed_unsync())
            }
            (Method::GET, ["api", "v1", "namespaces"]) => json_answer(&json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "shop"}}],
            })),
            (Method::GET, _) => json_answer(&json!({
                "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": [],
            })),
            (method, path) => panic!("{method} {path:?} was not expected"),
        }
    }

    /// Lists the pods that are opted in, or with a selector with `!=` the others.
    fn list(&self, query: &str) -> Answer {
        let versions = self.versions.borrow();
        let mut items: Vec<Value> = Vec::new();
        for pod in versions.iter() {
            items.retain(|other| other["metadata"]["name"] != pod["metadata"]["name"]);
            items.push(pod.clone());
        }
        let wanted = !query.contains("%21%3D");
        items.retain(|pod| (pod["metadata"]["labels"][CONTROL_LABEL] == "true") == wanted);
        json_answer(&json!({
            "apiVersion": "v1", "kind": "PodList",
            "metadata": {"resourceVersion": versions.len().to_string()}, "items": items,
        }))
    }

    fn watch(&self, query: &str) -> Answer {
        let version = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap();
        let seen: usize = version.parse().unwrap();
        let events = stream::unfold((self.versions.subscribe(), seen), |(mut versions, seen)| async move {
            let pod = versions.wait_for(|versions| versions.len() > seen).await.ok()?[seen].clone();
            Some((format!("{}\n", json!({"type": "MODIFIED", "object": pod})), (versions, seen + 1)))
        });
        let frames = events.map(|line| Ok(Frame::data(Bytes::from(line))));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn patch(&self, name: &str, patch: &Value) -> Answer {
        {
            let mut state = self.state.lock();
            if let Some((_, status)) = state.rejects.as_ref().filter(|(rejected, _)| rejected == name) {
                return failure(*status, "Rejected");
            }
            if std::mem::take(&mut state.is_disturbed) {
                let mut pod = self.get(name).unwrap();
                pod["metadata"]["annotations"]["other"] = json!("kept");
                self.put(pod);
            }
        }
        let Some(mut pod) = self.get(name) else { return failure(StatusCode::NOT_FOUND, "NotFound") };
        let precondition = |key: &str| patch["metadata"][key] == pod["metadata"][key];
        if !precondition("uid") || !precondition("resourceVersion") {
            return failure(StatusCode::CONFLICT, "Conflict");
        }
        for field in ["labels", "annotations"] {
            let changes = json!({"metadata": {field: patch["metadata"][field]}});
            if patch["metadata"][field].is_object() {
                json_patch::merge(&mut pod, &changes);
            }
        }
        patch_finalizers(&mut pod, &patch["metadata"]);
        let mut gate = None;
        for condition in patch["status"]["conditions"].as_array().into_iter().flatten() {
            if condition["type"] == SERVICE_READY_GATE {
                gate = Some(condition["status"].clone());
            }
            set_condition(&mut pod, condition.clone());
        }
        self.state.lock().patches.push(name.to_owned());
        let stored = self.put(pod.clone());
        if let Some(gate) = gate {
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            set_condition(&mut pod, json!({"type": "Ready", "status": gate, "lastTransitionTime": now}));
            self.put(pod);
        }
        json_answer(&stored)
    }
}

fn patch_finalizers(pod: &mut Value, patch: &Value) {
    let names = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let removed = names(&patch["$deleteFromPrimitiveList/finalizers"]);
    let mut finalizers = names(&pod["metadata"]["finalizers"]);
    finalizers.retain(|name| !removed.contains(name));
    finalizers.extend(names(&patch["finalizers"]));
    pod["metadata"]["finalizers"] = finalizers.into();
}

fn set_condition(pod: &mut Value, condition: Value) {
    let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
    if condition["$patch"] == "delete" {
        conditions.retain(|other| other["type"] != condition["type"]);
        return;
    }
    match conditions.iter_mut().find(|other| other["type"] == condition["type"]) {
        Some(present) => json_patch::merge(present, &condition),
        None => conditions.push(condition),
    }
}
