//! As much of an API server as deletes need: nodes and namespaces to list and watch, pods to read and watch, events to take.

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

/// The server. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Cluster {
    state: Arc<Mutex<State>>,
    changes: broadcast::Sender<(String, String)>,
    events: Arc<watch::Sender<Vec<Value>>>,
}

#[derive(Default)]
struct State {
    /// By path.
    objects: BTreeMap<String, Value>,
    /// What was asked for, without lists and watches of nodes and namespaces.
    asked: Vec<String>,
    /// Everything is answered so.
    fault: Option<StatusCode>,
}

impl Cluster {
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

    /// Stores an object, and tells those who watch.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let name = path.rsplit('/').next().unwrap();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["resourceVersion"] = json!("2");
        let collection = path.rsplit_once('/').unwrap().0.to_owned();
        self.state.lock().objects.insert(path.to_owned(), object.clone());
        self.tell(collection, "MODIFIED", &object);
    }

    pub(crate) fn delete(&self, path: &str) {
        let object = self.state.lock().objects.remove(path).unwrap();
        self.tell(path.rsplit_once('/').unwrap().0.to_owned(), "DELETED", &object);
    }

    fn tell(&self, collection: String, kind: &str, object: &Value) {
        // Nobody may be watching.
        let _ = self.changes.send((collection, format!("{}\n", json!({"type": kind, "object": object}))));
    }

    /// From now on everything is answered with `status`.
    pub(crate) fn fail(&self, status: StatusCode) {
        self.state.lock().fault = Some(status);
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().asked.clone()
    }

    /// Waits for the next event that somebody sends.
    pub(crate) async fn event(&self) -> Value {
        self.events.subscribe().wait_for(|events| !events.is_empty()).await.unwrap()[0].clone()
    }

    pub(crate) fn events(&self) -> usize {
        self.events.borrow().len()
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
            let event: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            self.events.send_modify(|events| events.push(event.clone()));
            return whole(StatusCode::CREATED, &event);
        }
        let is_of_memory = matches!(path.as_str(), "/api/v1/nodes" | "/api/v1/namespaces");
        if !is_of_memory {
            self.state.lock().asked.push(path.clone());
        }
        if query.contains("watch=true") {
            return self.watch(path, is_of_memory);
        }
        if is_of_memory {
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

/// A node whose condition Ready is so since then.
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
