//! An API server in memory for one Lease: create, read, merge patch with a resource version, list and watch.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use podward_support::api_answers::{Answer, failure, json_answer};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The server. Clones share its state.
#[derive(Clone)]
pub(crate) struct ApiServer {
    /// Every version of the Lease so far.
    history: Arc<watch::Sender<Vec<Value>>>,
    writes: Arc<Mutex<HashMap<String, usize>>>,
    /// The resource version before the first version.
    base: Arc<AtomicUsize>,
}

/// The connection of one client to the server.
pub(crate) struct Link {
    pub(crate) client: Client,
    cut: Arc<AtomicBool>,
}

impl Link {
    /// From now on no request is answered, as if the network were down, or the process killed.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }
}

impl ApiServer {
    pub(crate) fn new() -> Self {
        let base = Arc::new(AtomicUsize::new(1000));
        Self { history: Arc::new(watch::channel(Vec::new()).0), writes: Arc::default(), base }
    }

    pub(crate) fn link(&self) -> Link {
        let cut = Arc::new(AtomicBool::new(false));
        let (server, is_cut) = (self.clone(), Arc::clone(&cut));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, is_cut) = (server.clone(), Arc::clone(&is_cut));
            async move {
                if is_cut.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(server.answer(request).await)
            }
        });
        Link { client: Client::new(service, "n"), cut }
    }

    pub(crate) fn lease(&self) -> Option<Value> {
        self.history.borrow().last().cloned()
    }

    /// Writes without preconditions, as a person with kubectl does.
    pub(crate) fn meddle(&self, change: Value) {
        let mut lease = self.lease().unwrap();
        json_patch::merge(&mut lease, &change);
        self.store(lease);
    }

    /// Restores a backup: all versions, also those of later writes, are lower than before. Watches show nothing until
    /// they begin anew.
    pub(crate) fn restore(&self) {
        self.base.store(0, Ordering::SeqCst);
        self.history.send_modify(|history| {
            let version = history.len().to_string();
            if let Some(lease) = history.last_mut() {
                lease["metadata"]["resourceVersion"] = json!(version);
            }
        });
    }

    fn version_of(&self, length: usize) -> String {
        (self.base.load(Ordering::SeqCst) + length).to_string()
    }

    pub(crate) fn writes(&self, method: &Method) -> usize {
        self.writes.lock().get(method.as_str()).copied().unwrap_or_default()
    }

    fn store(&self, mut lease: Value) -> Value {
        self.history.send_modify(|history| {
            lease["metadata"]["resourceVersion"] = json!(self.version_of(history.len() + 1));
            history.push(lease.clone());
        });
        lease
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let query = head.uri.query().unwrap_or_default();
        *self.writes.lock().entry(head.method.to_string()).or_default() += 1;
        let is_list = head.uri.path().ends_with("/leases");
        match head.method {
            Method::GET if query.contains("watch=true") => self.watch(query),
            Method::GET if is_list => {
                let version = self.version_of(self.history.borrow().len());
                let items: Vec<Value> = self.lease().into_iter().collect();
                json_answer(&json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
                    "metadata": {"resourceVersion": version}, "items": items,
                }))
            }
            Method::GET => match self.lease() {
                Some(lease) => json_answer(&lease),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            },
            Method::POST => match self.lease() {
                Some(_) => failure(StatusCode::CONFLICT, "AlreadyExists"),
                None => json_answer(&self.store(body)),
            },
            Method::PATCH => {
                let Some(mut lease) = self.lease() else {
                    return failure(StatusCode::NOT_FOUND, "NotFound");
                };
                if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
                    return failure(StatusCode::CONFLICT, "Conflict");
                }
                json_patch::merge(&mut lease, &body);
                json_answer(&self.store(lease))
            }
            method => panic!("{method} was not expected"),
        }
    }

    fn watch(&self, query: &str) -> Answer {
        let version = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap();
        let seen: usize = version.parse().unwrap();
        let Some(seen) = seen.checked_sub(self.base.load(Ordering::SeqCst)) else {
            return failure(StatusCode::GONE, "Expired");
        };
        let events = stream::unfold((self.history.subscribe(), seen), |(mut history, seen)| async move {
            let lease = history.wait_for(|history| history.len() > seen).await.ok()?[seen].clone();
            let kind = if seen == 0 { "ADDED" } else { "MODIFIED" };
            let line = format!("{}\n", json!({"type": kind, "object": lease}));
            Some((line, (history, seen + 1)))
        });
        let frames = events.map(|line| Ok(Frame::data(Bytes::from(line))));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}
