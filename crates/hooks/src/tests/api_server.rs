//! As much of an API server as the engine needs: lists and watches of hooks and namespaces, and patches of the hooks'
//! status.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

use podward_support::api_answers::{Answer, failure, json_answer};

use super::TEST_TIMEOUT;

/// The server. Clones are the same one.
#[derive(Clone)]
pub(super) struct ApiServer {
    hooks: Objects,
    namespaces: Objects,
    /// Whether the CustomResourceDefinition is there.
    installed: Arc<AtomicBool>,
    /// The number of requested tokens.
    pub(super) tokens: Arc<AtomicUsize>,
    pub(super) issues_tokens: Arc<AtomicBool>,
}

/// Every event about the objects of one kind so far.
#[derive(Clone)]
struct Objects(Arc<watch::Sender<Vec<(&'static str, Value)>>>);

impl Objects {
    fn new() -> Self {
        Objects(Arc::new(watch::channel(Vec::new()).0))
    }

    fn present(&self) -> Vec<Value> {
        let mut present: Vec<Value> = Vec::new();
        for (kind, object) in &*self.0.borrow() {
            present.retain(|other| other["metadata"]["name"] != object["metadata"]["name"]);
            if *kind != "DELETED" {
                present.push(object.clone());
            }
        }
        present
    }

    fn get(&self, name: &str) -> Option<Value> {
        self.present().into_iter().find(|object| object["metadata"]["name"] == name)
    }

    fn push(&self, kind: &'static str, mut object: Value) -> Value {
        self.0.send_modify(|events| {
            object["metadata"]["resourceVersion"] = json!((events.len() + 1).to_string());
            events.push((kind, object.clone()));
        });
        object
    }

    fn list(&self) -> Answer {
        let version = self.0.borrow().len().to_string();
        json_answer(&json!({
            "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version}, "items": self.present(),
        }))
    }

    fn watch(&self, query: &str) -> Answer {
        let version = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap();
        let seen: usize = version.parse().unwrap();
        let events = stream::unfold((self.0.subscribe(), seen), |(mut events, seen)| async move {
            let (kind, object) = events.wait_for(|events| events.len() > seen).await.ok()?[seen].clone();
            Some((format!("{}\n", json!({"type": kind, "object": object})), (events, seen + 1)))
        });
        let frames = events.map(|line| Ok(Frame::data(Bytes::from(line))));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

impl ApiServer {
    pub(super) fn new() -> Self {
        let installed = Arc::new(AtomicBool::new(true));
        let (tokens, issues_tokens) = (Arc::default(), Arc::new(AtomicBool::new(true)));
        Self { hooks: Objects::new(), namespaces: Objects::new(), installed, tokens, issues_tokens }
    }

    pub(super) fn without_hooks() -> Self {
        let server = Self::new();
        server.installed.store(false, Ordering::SeqCst);
        server
    }

    pub(super) fn install_hooks(&self) {
        self.installed.store(true, Ordering::SeqCst);
    }

    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::new(service, "n")
    }

    /// Makes or changes a hook; a changed one keeps its identity and status, and has another generation.
    pub(super) fn put_hook(&self, mut hook: Value) {
        let name = hook["metadata"]["name"].as_str().unwrap().to_owned();
        match self.hooks.get(&name) {
            Some(before) => {
                hook["status"] = before["status"].clone();
                hook["metadata"]["uid"] = before["metadata"]["uid"].clone();
                hook["metadata"]["generation"] =
                    json!(before["metadata"]["generation"].as_i64().unwrap() + 1);
                self.hooks.push("MODIFIED", hook);
            }
            None => {
                hook["metadata"]["uid"] = json!(format!("{name}-{}", self.hooks.0.borrow().len()));
                hook["metadata"]["generation"] = json!(1);
                self.hooks.push("ADDED", hook);
            }
        }
    }

    /// Deletes a hook and makes it again. The watch misses the deletion.
    pub(super) fn replace_hook(&self, name: &str) {
        let mut hook = self.hooks.get(name).unwrap();
        hook["metadata"]["uid"] = json!(format!("{name}-replaced"));
        self.hooks.push("MODIFIED", hook);
    }

    pub(super) fn delete_hook(&self, name: &str) {
        let hook = self.hooks.get(name).unwrap();
        self.hooks.push("DELETED", hook);
    }

    pub(super) fn put_namespace(&self, name: &str, labels: Value) {
        let kind = if self.namespaces.get(name).is_some() { "MODIFIED" } else { "ADDED" };
        self.namespaces.push(
            kind,
            json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": name, "labels": labels},
            }),
        );
    }

    /// Waits until the status of the hook `name` is so; gives it.
    pub(super) async fn status(&self, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut events = self.hooks.0.subscribe();
        let status = || self.hooks.get(name).map(|hook| hook["status"].clone()).unwrap_or_default();
        let wait = events.wait_for(|_| is_so(&status()));
        match tokio::time::timeout(TEST_TIMEOUT, wait).await {
            Ok(_) => status(),
            Err(_) => panic!("the status of {name} is {}", status()),
        }
    }

    /// How often the status of the hook `name` was written.
    pub(super) fn status_writes(&self, name: &str) -> usize {
        let events = self.hooks.0.borrow();
        let of_it = events.iter().filter(|(_, hook)| hook["metadata"]["name"] == name);
        let statuses: Vec<&Value> = of_it.map(|(_, hook)| &hook["status"]).collect();
        statuses.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query = head.uri.query().unwrap_or_default();
        let path: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
        let objects = if path.contains(&"namespaces") { &self.namespaces } else { &self.hooks };
        if path.contains(&"lifecyclehooks") && !self.installed.load(Ordering::SeqCst) {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        }
        match (head.method, path.as_slice()) {
            (Method::GET, _) if query.contains("watch=true") => objects.watch(query),
            (Method::GET, _) => objects.list(),
            (Method::PATCH, [.., name, "status"]) => {
                let patch: Value = serde_json::from_slice(&body).unwrap();
                let Some(mut hook) = self.hooks.get(name) else {
                    return failure(StatusCode::NOT_FOUND, "NotFound");
                };
                if patch["metadata"]["resourceVersion"] != hook["metadata"]["resourceVersion"] {
                    return failure(StatusCode::CONFLICT, "Conflict");
                }
                let before = hook["status"].clone();
                json_patch::merge(&mut hook, &patch);
                assert_ne!(before, hook["status"], "what is already so was written");
                json_answer(&self.hooks.push("MODIFIED", hook))
            }
            (Method::POST, [.., "serviceaccounts", account, "token"]) => {
                let mut request: Value = serde_json::from_slice(&body).unwrap();
                let audience = request["spec"]["audiences"][0].as_str().unwrap().to_owned();
                let number = self.tokens.fetch_add(1, Ordering::SeqCst) + 1;
                if !self.issues_tokens.load(Ordering::SeqCst) {
                    return failure(StatusCode::FORBIDDEN, "Forbidden");
                }
                request["status"] = json!({
                    "token": format!("{account}-{audience}-{number}"), "expirationTimestamp": "2026-01-01T00:00:00Z",
                });
                json_answer(&request)
            }
            (method, path) => panic!("{method} {path:?} was not expected"),
        }
    }
}
