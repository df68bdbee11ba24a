//! A fake API server with what deletes need: lists and watches of nodes and namespaces, reads and watches of pods, and
//! events.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use podward_support::api_answers::{Answer, failure, json_answer};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

/// A user who has no right. All others have all rights.
pub(crate) const WITHOUT_RIGHTS: &str = "mallory";

/// The fake API server. Clones share the state.
#[derive(Clone)]
pub(crate) struct FakeCluster {
    state: Arc<Mutex<ServerState>>,
    changes: broadcast::Sender<(String, String)>,
    events: Arc<watch::Sender<Vec<Value>>>,
}

#[derive(Default)]
struct ServerState {
    /// By path.
    objects: BTreeMap<String, Value>,
    /// The paths of all reads, except lists and watches of nodes and namespaces.
    reads: Vec<String>,
    /// The status of all responses, if set.
    fault: Option<StatusCode>,
}

impl FakeCluster {
    pub(crate) fn new() -> Self {
        let cluster = Self {
            state: Arc::default(),
            changes: broadcast::channel(64).0,
            events: Arc::new(watch::channel(Vec::new()).0),
        };
        cluster.put("/api/v1/nodes/n1", node("True", "2020-01-01T00:00:00Z"));
        cluster.put("/api/v1/namespaces/shop", json!({}));
        cluster
    }

    /// Stores an object and sends an event to all watches.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let name = path.rsplit('/').next().unwrap();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["resourceVersion"] = json!("2");
        let collection = path.rsplit_once('/').unwrap().0.to_owned();
        self.state.lock().objects.insert(path.to_owned(), object.clone());
        self.send_event(collection, "MODIFIED", &object);
    }

    pub(crate) fn delete(&self, path: &str) {
        let object = self.state.lock().objects.remove(path).unwrap();
        self.send_event(path.rsplit_once('/').unwrap().0.to_owned(), "DELETED", &object);
    }

    fn send_event(&self, collection: String, kind: &str, object: &Value) {
        // There may be no watch.
        let _ = self.changes.send((collection, format!("{}\n", json!({"type": kind, "object": object}))));
    }

    /// Answers all requests with `status` from now on.
    pub(crate) fn fail(&self, status: StatusCode) {
        self.state.lock().fault = Some(status);
    }

    pub(crate) fn reads(&self) -> Vec<String> {
        self.state.lock().reads.clone()
    }

    /// Waits for the first event that is created. Returns it.
    pub(crate) async fn event(&self) -> Value {
        self.events.subscribe().wait_for(|events| !events.is_empty()).await.unwrap()[0].clone()
    }

    pub(crate) fn watchers(&self) -> usize {
        self.changes.receiver_count()
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        if let Some(status) = self.state.lock().fault {
            return refusal(status);
        }
        if head.method == Method::POST {
            let mut event: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            if path.ends_with("/subjectaccessreviews") {
                let allowed = event["spec"]["user"] != WITHOUT_RIGHTS;
                event["status"] = json!({"allowed": allowed});
                return whole(StatusCode::CREATED, &event);
            }
            self.events.send_modify(|events| events.push(event.clone()));
            return whole(StatusCode::CREATED, &event);
        }
        let is_cached = matches!(path.as_str(), "/api/v1/nodes" | "/api/v1/namespaces");
        if !is_cached {
            self.state.lock().reads.push(path.clone());
        }
        if query.contains("watch=true") {
            return self.watch(path, is_cached);
        }
        if is_cached {
            let items: Vec<Value> = self.under(&path);
            return whole(
                StatusCode::OK,
                &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
            );
        }
        match self.state.lock().objects.get(&path) {
            Some(object) => whole(StatusCode::OK, object),
            None => refusal(StatusCode::NOT_FOUND),
        }
    }

    fn under(&self, collection: &str) -> Vec<Value> {
        let state = self.state.lock();
        let inside = |path: &str| path.rsplit_once('/').is_some_and(|(of, _)| of == collection);
        state.objects.iter().filter(|(path, _)| inside(path)).map(|(_, object)| object.clone()).collect()
    }

    fn watch(&self, collection: String, after_a_list: bool) -> Answer {
        let changes = self.changes.subscribe();
        let present = if after_a_list { Vec::new() } else { self.under(&collection) };
        let present =
            present.into_iter().map(|object| format!("{}\n", json!({"type": "ADDED", "object": object})));
        let later = stream::unfold((changes, collection), |(mut changes, collection)| async move {
            loop {
                let (of, line) = changes.recv().await.ok()?;
                if of == collection {
                    return Some((line, (changes, collection)));
                }
            }
        });
        let frames = stream::iter(present).chain(later).map(|line| Ok(Frame::data(Bytes::from(line))));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

/// Returns a node with the condition Ready.
pub(crate) fn node(ready: &str, since: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]}})
}

fn whole(status: StatusCode, value: &Value) -> Answer {
    let mut answer = json_answer(value);
    *answer.status_mut() = status;
    answer
}

fn refusal(status: StatusCode) -> Answer {
    failure(status, if status == StatusCode::NOT_FOUND { "NotFound" } else { "Forbidden" })
}
