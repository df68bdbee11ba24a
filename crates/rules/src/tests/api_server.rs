//! The part of an API server that rules need: lists and watches of PodTransitionRules, their statuses, the metadata of
//! pods, and their owners.

mod controls;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use serde_json::{Value, json};
use tokio::sync::watch;

use podward_support::api_answers::{Answer, failure, json_answer};

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rules,
    Pods,
    /// ReplicaSets and Jobs.
    Sets,
}

/// The objects, the faults to cause, and the counters.
#[derive(Debug, Default)]
struct Inner {
    version: u64,
    /// Every event so far.
    log: Vec<(u64, Kind, &'static str, Value)>,
    has_no_rules: bool,
    fails_to_list: bool,
    holds_watch: bool,
    status_writes: Vec<Value>,
    /// By name and holder: when the status was last written.
    written: HashMap<(String, String), Instant>,
    /// Objects whose status was written twice within a second.
    hasty: Vec<String>,
    /// A rule object that another writer changes before each write of its status, and how many times.
    disturbed: (String, usize),
    /// A rule object whose status can't be written.
    denied: Option<String>,
    /// How often such a write was denied.
    denials: usize,
    /// A rule object that is deleted while its status is written.
    vanishing: Option<String>,
    /// The last version of a rule object whose event a watch has processed.
    rules_seen: u64,
    pod_lists: usize,
    /// How long a list of pods that are not opted in takes.
    outside_delay: Duration,
    fails_to_list_outside: bool,
    holds_outside_lists: bool,
    /// How long a list of pods that are opted in takes.
    pods_delay: Duration,
    fails_to_read_owners: bool,
    failed_owner_reads: usize,
    /// How long a write of a status takes.
    status_delay: Duration,
    /// Of pods that are not opted in.
    outside_lists: usize,
    /// Of one namespace.
    rule_lists: usize,
    rule_watches: usize,
}

/// The server. Clones share it.
#[derive(Clone)]
pub(super) struct ApiServer {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<u64>>,
}

impl ApiServer {
    pub(super) fn new() -> Self {
        ApiServer { inner: Arc::default(), changed: Arc::new(watch::channel(0).0) }
    }

    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::new(service, "shop")
    }

    /// Stores an object. Returns `None` if its version is not `before`.
    pub(super) fn store(&self, kind: Kind, mut object: Value, before: Option<&str>) -> Option<Value> {
        let stored = {
            let mut inner = self.inner.lock();
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let present = find(&inner.log, kind, &name);
            if before.is_some_and(|before| {
                present.as_ref().is_none_or(|now| now["metadata"]["resourceVersion"] != before)
            }) {
                return None;
            }
            inner.version += 1;
            let metadata = &mut object["metadata"];
            metadata["resourceVersion"] = json!(inner.version.to_string());
            metadata["namespace"] = json!("shop");
            if metadata["uid"].is_null() {
                metadata["uid"] = json!(format!("{name}-{}", inner.version));
            }
            let event = if present.is_some() { "MODIFIED" } else { "ADDED" };
            let version = inner.version;
            inner.log.push((version, kind, event, object.clone()));
            object
        };
        self.changed.send_modify(|count| *count += 1);
        Some(stored)
    }

    /// Deletes an object. One with finalizers is terminating until they are gone.
    pub(super) fn delete(&self, kind: Kind, name: &str) {
        let mut object = self.get(kind, name).unwrap();
        if has_finalizers(&object) {
            let metadata = &mut object["metadata"];
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            metadata["generation"] = json!(metadata["generation"].as_i64().unwrap_or_default() + 1);
            self.store(kind, object, None);
            return;
        }
        {
            let mut inner = self.inner.lock();
            inner.version += 1;
            object["metadata"]["resourceVersion"] = json!(inner.version.to_string());
            let version = inner.version;
            inner.log.push((version, kind, "DELETED", object));
        }
        self.changed.send_modify(|count| *count += 1);
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        find(&self.inner.lock().log, kind, name)
    }

    /// Creates a rule object, or changes its spec.
    pub(super) fn rule(&self, name: &str, spec: Value) {
        let mut object = self.get(Kind::Rules, name).unwrap_or_else(|| {
            json!({
                "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
                "metadata": {"name": name, "generation": 0},
            })
        });
        object["spec"] = spec;
        object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap() + 1);
        self.store(Kind::Rules, object, None);
    }

    /// Sets the finalizers of a rule object.
    pub(super) fn set_rule_finalizers(&self, name: &str, finalizers: &[&str]) {
        let mut object = self.get(Kind::Rules, name).unwrap();
        object["metadata"]["finalizers"] = json!(finalizers);
        self.store(Kind::Rules, object, None);
    }

    /// Changes an annotation of a rule object.
    pub(super) fn annotate_rule(&self, name: &str, key: &str, text: &str) {
        let mut object = self.get(Kind::Rules, name).unwrap();
        object["metadata"]["annotations"] = json!({key: text});
        self.store(Kind::Rules, object, None);
    }

    /// Returns the events of pods after `version`.
    pub(super) fn pods_since(&self, version: u64) -> Vec<(u64, &'static str, Value)> {
        let inner = self.inner.lock();
        let pods = inner.log.iter().filter(|(at, kind, ..)| *kind == Kind::Pods && *at > version);
        pods.map(|(at, _, event, object)| (*at, *event, object.clone())).collect()
    }

    /// `opted_in` is `None` for pods of both kinds.
    fn list(&self, kind: Kind, name: Option<&str>, opted_in: Option<bool>) -> Answer {
        let inner = self.inner.lock();
        let items: Vec<Value> = present(&inner.log, kind)
            .into_iter()
            .filter(|object| name.is_none_or(|name| object["metadata"]["name"] == name))
            .filter(|object| opted_in.is_none_or(|opted_in| is_opted_in(object) == opted_in))
            .collect();
        json_answer(&json!({
            "apiVersion": "v1", "kind": "List",
            "metadata": {"resourceVersion": inner.version.to_string()}, "items": items,
        }))
    }

    fn watch(&self, kind: Kind, name: Option<String>, query: &str) -> Answer {
        let version = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap();
        let seen: u64 = version.parse().unwrap();
        self.inner.lock().rule_watches += usize::from(kind == Kind::Rules);
        let events =
            stream::unfold((self.clone(), self.changed.subscribe(), seen, name), move |at| async move {
                let (server, mut changed, seen, name) = at;
                loop {
                    changed.mark_unchanged();
                    let next = {
                        let mut inner = server.inner.lock();
                        if kind == Kind::Rules {
                            inner.rules_seen = inner.rules_seen.max(seen);
                        }
                        let is_held = inner.holds_watch && kind == Kind::Rules;
                        let is_next = |(at, of, _, object): &&(u64, Kind, &'static str, Value)| {
                            let is_it =
                                name.as_ref().is_none_or(|name| object["metadata"]["name"] == name.as_str());
                            *at > seen && *of == kind && is_it
                        };
                        inner.log.iter().find(is_next).filter(|_| !is_held).cloned()
                    };
                    if let Some((at, _, event, object)) = next {
                        let line = format!("{}\n", json!({"type": event, "object": object}));
                        return Some((line, (server, changed, at, name)));
                    }
                    changed.changed().await.ok()?;
                }
            });
        let frames = events.map(|line| Ok(Frame::data(Bytes::from(line))));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let path: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
        let kind = match () {
            () if path.contains(&"podtransitionrules") => Kind::Rules,
            () if path.contains(&"replicasets") || path.contains(&"jobs") => Kind::Sets,
            () => Kind::Pods,
        };
        if kind == Kind::Rules && self.inner.lock().has_no_rules {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        }
        let field = query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector=metadata.name%3D"));
        match (head.method, path.as_slice()) {
            (Method::GET, _) if query.contains("watch=true") => {
                self.watch(kind, field.map(ToOwned::to_owned), &query)
            }
            (Method::GET, [.., "podtransitionrules" | "replicasets" | "jobs" | "pods"]) => {
                // Only lists of one namespace. The list of the watch does not fail.
                if self.inner.lock().fails_to_list && kind == Kind::Rules && path.contains(&"namespaces") {
                    return failure(StatusCode::FORBIDDEN, "Forbidden");
                }
                let is_of_namespace = path.contains(&"namespaces");
                let opted_in = match () {
                    () if query.contains("control%3Dtrue") => Some(true),
                    () if query.contains("control%21%3Dtrue") => Some(false),
                    () => None,
                };
                let delay = {
                    let mut inner = self.inner.lock();
                    inner.pod_lists += usize::from(opted_in == Some(true));
                    inner.outside_lists += usize::from(opted_in == Some(false));
                    inner.rule_lists += usize::from(kind == Kind::Rules && is_of_namespace);
                    match opted_in {
                        Some(true) => inner.pods_delay,
                        Some(false) if inner.fails_to_list_outside => {
                            return failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
                        }
                        Some(false) => inner.outside_delay,
                        None => Duration::ZERO,
                    }
                };
                let answer = self.list(kind, field, opted_in);
                let mut changed = self.changed.subscribe();
                let is_held = |_: &u64| opted_in == Some(false) && self.inner.lock().holds_outside_lists;
                changed.wait_for(|count| !is_held(count)).await.unwrap();
                tokio::time::sleep(delay).await;
                answer
            }
            (Method::GET, _) if kind == Kind::Sets && self.inner.lock().fails_to_read_owners => {
                self.inner.lock().failed_owner_reads += 1;
                failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
            }
            (Method::GET, [.., name]) => match self.get(kind, name) {
                Some(object) => json_answer(&object),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            },
            (Method::PATCH, [.., "podtransitionrules", name]) => self.patch_rule(name, &body),
            (Method::PATCH, [.., "podtransitionrules", name, "status"]) => {
                let patch: Value = serde_json::from_slice(&body).unwrap();
                let delay = self.inner.lock().status_delay;
                tokio::time::sleep(delay).await;
                if self.denies(name) {
                    return failure(StatusCode::FORBIDDEN, "Forbidden");
                }
                self.disturb_now(name);
                let vanishes = self.inner.lock().vanishing.take_if(|vanishing| vanishing == name);
                if vanishes.is_some() {
                    self.delete(kind, name);
                    self.rules_followed().await;
                }
                let Some(mut object) = self.get(kind, name) else {
                    return failure(StatusCode::NOT_FOUND, "NotFound");
                };
                let version = patch["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                let before = object["status"].clone();
                json_patch::merge(&mut object, &patch);
                let status = object["status"].clone();
                let Some(stored) = self.store(kind, object, Some(&version)) else {
                    return failure(StatusCode::CONFLICT, "Conflict");
                };
                assert_ne!(before, status, "the write changed nothing");
                let mut inner = self.inner.lock();
                let key = ((*name).to_owned(), status["holder"].to_string());
                let before = inner.written.insert(key, Instant::now());
                if before.is_some_and(|before| before.elapsed() < Duration::from_secs(1)) {
                    inner.hasty.push((*name).to_owned());
                }
                inner.status_writes.push(status);
                json_answer(&stored)
            }
            (method, path) => panic!("{method} {path:?} was not expected"),
        }
    }
}

impl ApiServer {
    fn denies(&self, name: &str) -> bool {
        let mut inner = self.inner.lock();
        let is_denied = inner.denied.as_deref() == Some(name);
        inner.denials += usize::from(is_denied);
        is_denied
    }

    /// Changes the rule object `name` as another writer, if that is still to be done.
    fn disturb_now(&self, name: &str) {
        let is_disturbed = {
            let (disturbed, left) = &mut self.inner.lock().disturbed;
            let is_disturbed = disturbed == name && *left > 0;
            *left -= usize::from(is_disturbed);
            is_disturbed
        };
        if let Some(object) = self.get(Kind::Rules, name).filter(|_| is_disturbed) {
            self.store(Kind::Rules, object, None);
        }
    }

    /// Patches the metadata of a rule object. A terminating object without finalizers is removed.
    fn patch_rule(&self, name: &str, body: &[u8]) -> Answer {
        let patch: Value = serde_json::from_slice(body).unwrap();
        self.disturb_now(name);
        let Some(mut object) = self.get(Kind::Rules, name) else {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        };
        let version = patch["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let uid = &patch["metadata"]["uid"];
        if object["metadata"]["resourceVersion"] != version || object["metadata"]["uid"] != *uid {
            return failure(StatusCode::CONFLICT, "Conflict");
        }
        json_patch::merge(&mut object, &patch);
        let Some(stored) = self.store(Kind::Rules, object, Some(&version)) else {
            return failure(StatusCode::CONFLICT, "Conflict");
        };
        if !stored["metadata"]["deletionTimestamp"].is_null() && !has_finalizers(&stored) {
            self.delete(Kind::Rules, name);
        }
        json_answer(&stored)
    }
}

/// True if the watch of pods delivers this one.
pub(super) fn is_opted_in(pod: &Value) -> bool {
    pod["metadata"]["labels"][CONTROL_LABEL] == CONTROL_VALUE
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

fn present(log: &[(u64, Kind, &'static str, Value)], kind: Kind) -> Vec<Value> {
    let mut present: Vec<Value> = Vec::new();
    for (_, _, event, object) in log.iter().filter(|(_, of, ..)| *of == kind) {
        present.retain(|other| other["metadata"]["name"] != object["metadata"]["name"]);
        if *event != "DELETED" {
            present.push(object.clone());
        }
    }
    present
}

fn find(log: &[(u64, Kind, &'static str, Value)], kind: Kind, name: &str) -> Option<Value> {
    let last =
        log.iter().rev().find(|(_, of, _, object)| *of == kind && object["metadata"]["name"] == name)?;
    (last.2 != "DELETED").then(|| last.3.clone())
}
