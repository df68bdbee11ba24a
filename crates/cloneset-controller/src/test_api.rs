//! A stand-in API server for tests of reconciliations.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use podward_api::CloneSet;
use podward_kube_util::Events;
use podward_runtime::progress::Progress;
use podward_runtime::telemetry::traces::Spans;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use crate::context::Context;
use crate::metrics::Metrics;

/// The server. It accepts what is written, and answers with it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct ApiServer {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    version: u64,
    /// By path.
    objects: HashMap<String, Value>,
    /// How long it takes to answer.
    latency: Duration,
    /// The method, the end of the path, and the code and the words of the answer of requests that are refused.
    refused: Vec<(Method, &'static str, u16, String)>,
    /// The method, the path and the body of each request.
    requests: Vec<(Method, String, Value)>,
}

impl ApiServer {
    /// Answers after this time.
    pub(crate) fn delay(&self, latency: Duration) {
        self.inner.lock().latency = latency;
    }

    /// Refuses requests about this resource with a text in which `NAME` is the name of the object.
    pub(crate) fn refuse(&self, method: Method, resource: &'static str, text: &str) {
        self.refuse_with(403, method, resource, text);
    }

    /// Refuses requests as [`Self::refuse`] does, with this code.
    pub(crate) fn refuse_with(&self, code: u16, method: Method, resource: &'static str, text: &str) {
        self.inner.lock().refused.clear();
        self.also_refuse(code, method, resource, text);
    }

    /// Refuses these requests, and those of before.
    pub(crate) fn also_refuse(&self, code: u16, method: Method, resource: &'static str, text: &str) {
        self.inner.lock().refused.push((method, resource, code, text.to_owned()));
    }

    /// Forgets a pod.
    pub(crate) fn forget_pod(&self, name: &str) {
        self.inner.lock().objects.remove(&format!("/api/v1/namespaces/test/pods/{name}"));
    }

    /// Stores a pod.
    pub(crate) fn store_pod(&self, name: &str, pod: Value) {
        self.inner.lock().objects.insert(format!("/api/v1/namespaces/test/pods/{name}"), pod);
    }

    /// Returns the bodies of the requests that create objects of this resource.
    pub(crate) fn created(&self, resource: &str) -> Vec<Value> {
        let inner = self.inner.lock();
        let of_resource = inner
            .requests
            .iter()
            .filter(|(method, path, _)| *method == Method::POST && path.rsplit('/').next() == Some(resource));
        of_resource.map(|(_, _, body)| body.clone()).collect()
    }

    /// Returns the bodies of the requests that patch pods.
    pub(crate) fn patched_pods(&self) -> Vec<Value> {
        let inner = self.inner.lock();
        let of_pods = inner
            .requests
            .iter()
            .filter(|(method, path, _)| *method == Method::PATCH && path.contains("/pods/"));
        of_pods.map(|(_, _, body)| body.clone()).collect()
    }

    /// Returns the number of requests that delete objects of this resource.
    pub(crate) fn deleted(&self, resource: &str) -> usize {
        let inner = self.inner.lock();
        let of_resource = inner
            .requests
            .iter()
            .filter(|(method, path, _)| *method == Method::DELETE && path.contains(&format!("/{resource}/")));
        of_resource.count()
    }

    /// Returns all requests as one text.
    pub(crate) fn requests(&self) -> String {
        format!("{:?}", self.inner.lock().requests)
    }

    /// Returns the types, reasons and texts of the events so far.
    pub(crate) async fn events(&self, context: &Context) -> Vec<(String, String, String)> {
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let read = |event: &Value| (text(event, "type"), text(event, "reason"), text(event, "note"));
        // Events are sent in their order.
        let is_last = |event: &(String, String, String)| event.1 == "Last";
        let before = self.created("events").len();
        let object = kube::Resource::object_ref(&set(json!({})), &());
        context.events.normal_about(object, "Last", String::new());
        loop {
            let events: Vec<_> = self.created("events").iter().map(read).collect();
            if events.iter().skip(before).any(is_last) {
                return events.into_iter().filter(|event| !is_last(event)).collect();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns what reconciliations share.
    pub(crate) fn context(&self, progress: Progress) -> Arc<Context> {
        let server = self.clone();
        let client = Client::new(
            service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            }),
            "test",
        );
        let metrics = Arc::new(Metrics::default());
        Arc::new(Context {
            client: client.clone(),
            pods: Arc::default(),
            revisions: Arc::default(),
            claims: Arc::default(),
            events: Events::start(client, "cloneset-controller", "test", metrics.events.clone()),
            metrics,
            progress,
            spans: Spans::none(),
            stop: CancellationToken::new(),
            user: OnceCell::new(),
            memory: Mutex::default(),
        })
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let bytes = body.collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let latency = self.inner.lock().latency;
        tokio::time::sleep(latency).await;
        let mut inner = self.inner.lock();
        inner.requests.push((head.method.clone(), path.clone(), body.clone()));
        // Subresources are parts of the object.
        let of_object = path.strip_suffix("/status").or(path.strip_suffix("/resize")).unwrap_or(&path);
        let last = of_object.rsplit('/').next().unwrap_or_default();
        let name = body["metadata"]["name"].as_str().unwrap_or(last).to_owned();
        let is_refused = |(method, resource, ..): &&(Method, &'static str, u16, String)| {
            *method == head.method && path.contains(&format!("/{resource}"))
        };
        if let Some((_, _, code, text)) = inner.refused.iter().find(is_refused) {
            let message = text.replace("NAME", &name);
            let body = json!({"kind": "Status", "status": "Failure", "reason": "Refused", "code": code, "message": message});
            return response(*code, &body);
        }
        inner.version += 1;
        let version = inner.version;
        if path.contains("/clonesets/") {
            return response(200, &json!(set(json!({}))));
        }
        if head.method == Method::GET {
            let name = head.uri.query().and_then(|query| query.split("metadata.name%3D").nth(1));
            let place = format!("{path}/{}", name.unwrap_or_default());
            let items: Vec<_> = inner.objects.get(&place).into_iter().collect();
            return response(200, &json!({"kind": "List", "metadata": {}, "items": items}));
        }
        let is_new_pod = head.method == Method::POST && last == "pods";
        let place = if head.method == Method::POST { format!("{path}/{name}") } else { of_object.to_owned() };
        if is_new_pod && inner.objects.contains_key(&place) {
            let reason = "AlreadyExists";
            let body = json!({"kind": "Status", "status": "Failure", "reason": reason, "code": 409, "message": name});
            return response(409, &body);
        }
        let mut object = inner.objects.remove(&place).unwrap_or_default();
        if head.method == Method::DELETE {
            return response(200, &json!({"kind": "Status", "status": "Success"}));
        }
        merge(&mut object, body);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{version}"));
        }
        inner.objects.insert(place, object.clone());
        response(200, &object)
    }
}

/// Applies a merge patch, and what a strategic merge patch removes from lists.
pub(crate) fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
                    let removed = value.as_array().unwrap();
                    into[list].as_array_mut().unwrap().retain(|it| !removed.contains(it));
                    continue;
                }
                match value {
                    Value::Null => drop(into.remove(&key)),
                    value => merge(into.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (into, patch) => *into = patch,
    }
}

fn response(code: u16, body: &Value) -> Response<Body> {
    let response = Response::builder().status(code);
    response.body(Body::from(body.to_string().into_bytes())).unwrap()
}

/// Returns the CloneSet `web` with a change of its spec.
pub(crate) fn set(change: Value) -> CloneSet {
    let mut spec = json!({
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "web:1"}]},
        },
    });
    for (key, value) in change.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let metadata = json!({"name": "web", "namespace": "test", "uid": "set-uid", "generation": 1});
    let set = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "metadata": metadata, "spec": spec});
    serde_json::from_value(set).unwrap()
}
