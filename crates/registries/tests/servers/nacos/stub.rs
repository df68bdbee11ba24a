//! What the published interface of Nacos 2.2 and 3 says, as far as the client uses it. It is not Nacos: what Nacos does
//! differently from its documentation and sources (alibaba/nacos) is not found by it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Form = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct State {
    version: u8,
    password: Option<String>,
    logins: usize,
    /// By service with its group, cluster, IP address and port.
    instances: BTreeMap<(String, String, String, u16), Value>,
    /// Service and type of the checker.
    checkers: Vec<String>,
    failures: usize,
    failing_changes: usize,
    /// The IP address of an instance that only the list of clients has.
    only_visible: Option<String>,
    /// True if the list of all instances is not found.
    hides_stored: bool,
}

#[derive(Clone, Debug)]
pub(super) struct NacosStub(Arc<Mutex<State>>);

impl NacosStub {
    pub(super) fn new(version: u8, password: Option<&str>) -> Self {
        let password = password.map(str::to_owned);
        Self(Arc::new(Mutex::new(State { version, password, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it, and returns its address without a path.
    pub(super) async fn start(&self) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let stub = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stub = stub.clone();
                let serve = service_fn(move |request| {
                    let stub = stub.clone();
                    async move { Ok::<_, Infallible>(stub.answer(request).await) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), serve),
                );
            }
        });
        Ok(url)
    }

    pub(super) fn checkers(&self) -> Vec<String> {
        self.state().checkers.clone()
    }

    pub(super) fn logins(&self) -> usize {
        self.state().logins
    }

    pub(super) fn become_version(&self, version: u8) {
        self.state().version = version;
    }

    /// The next requests are answered with 500.
    pub(super) fn fail_next(&self, count: usize) {
        self.state().failures = count;
    }

    /// The next changes are answered with 500.
    pub(super) fn fail_changes(&self, count: usize) {
        self.state().failing_changes = count;
    }

    /// Only the list of clients has the instance at an IP address from now on.
    pub(super) fn show_only(&self, ip: &str) {
        self.state().only_visible = Some(ip.to_owned());
    }

    /// The list of all instances is not found from now on.
    pub(super) fn hide_stored(&self) {
        self.state().hides_stored = true;
    }

    /// An application registers itself.
    pub(super) fn put_ephemeral(&self, service: &str, ip: &str, port: u16) {
        let key = (format!("DEFAULT_GROUP@@{service}"), "DEFAULT".to_owned(), ip.to_owned(), port);
        let instance = json!({
            "ip": ip, "port": port, "clusterName": "DEFAULT", "weight": 3.0, "healthy": true, "enabled": true,
            "ephemeral": true, "metadata": {"a": "b"},
        });
        self.state().instances.insert(key, instance);
    }

    /// Nacos finds the instances at an IP address healthy, or not.
    pub(super) fn set_healthy(&self, ip: &str, is_healthy: bool) {
        for (key, instance) in &mut self.state().instances {
            if key.2 == ip {
                instance["healthy"] = json!(is_healthy);
            }
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let query = head.uri.query().unwrap_or_default().as_bytes();
        let form: Form =
            [query, &body].into_iter().flat_map(|form| form_urlencoded::parse(form).into_owned()).collect();
        let token = head.headers.get("authorization").and_then(|value| value.to_str().ok());
        let (status, answer) = self
            .state()
            .answer(head.method.as_str(), head.uri.path(), &form, token)
            .unwrap_or((404, json!({})));
        let mut response = Response::new(Full::from(answer.to_string()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
        response
    }
}

impl State {
    /// Returns the status and the body. `None` if there is no such path.
    fn answer(&mut self, method: &str, path: &str, form: &Form, token: Option<&str>) -> Option<(u16, Value)> {
        let path = path.strip_prefix("/nacos/")?;
        let login = if self.version == 3 { "v3/auth/user/login" } else { "v1/auth/login" };
        if path == login {
            self.logins += 1;
            return Some(match form.get("password") == self.password.as_ref() {
                true => (200, json!({"accessToken": "t", "tokenTtl": 18000, "globalAdmin": true})),
                false => (403, json!("unknown user!")),
            });
        }
        let [instance, visible, stored, cluster] = match self.version {
            2 => ["v2/ns/instance", "v2/ns/instance/list", "v2/ns/catalog/instances", "v1/ns/cluster"],
            _ => [
                "v3/admin/ns/instance",
                "v3/client/ns/instance/list",
                "v3/admin/ns/instance/list",
                "v3/admin/ns/cluster",
            ],
        };
        if ![instance, visible, stored, cluster].contains(&path) {
            return None;
        }
        if path == stored && self.hides_stored {
            return None;
        }
        if self.password.is_some() && token != Some("Bearer t") {
            return Some((403, json!({"code": 403, "message": "access denied", "data": null})));
        }
        let count = if method == "GET" { &mut self.failures } else { &mut self.failing_changes };
        if *count > 0 {
            *count -= 1;
            return Some((500, json!({"code": 30000, "message": "server error", "data": null})));
        }
        let is_grouped = path == cluster && self.version == 2 || path.contains("catalog");
        let name = form.get("serviceName")?;
        let service = match (is_grouped, form.get("groupName")) {
            (true, _) => name.clone(),
            (false, group) => format!("{}@@{name}", group.map_or("DEFAULT_GROUP", String::as_str)),
        };
        let is_shown = |ip: &String| path != stored || self.only_visible.as_ref() != Some(ip);
        let of_service = self.instances.iter().filter(|(key, _)| key.0 == service && is_shown(&key.2));
        Some(if path == instance {
            self.change(method, service, form)?
        } else if path == visible {
            let found: Vec<_> =
                of_service.filter(|(_, value)| value["enabled"] == true).map(|(_, value)| value).collect();
            let data =
                if self.version == 2 { json!({"name": service, "hosts": found}) } else { json!(found) };
            (200, result(data))
        } else if path == stored && self.version == 2 {
            let found: Vec<_> = of_service.map(|(_, value)| value).collect();
            let mut data = json!({"count": found.len()});
            if !found.is_empty() {
                data["instances"] = json!(found);
            }
            (200, result(data))
        } else if path == stored {
            let wanted = form.get("clusterName")?;
            let found: Vec<_> =
                of_service.filter(|(key, _)| key.1 == *wanted).map(|(_, value)| value).collect();
            match found.is_empty() {
                true => (404, json!({"code": 20004, "message": "resource not found", "data": "not found!"})),
                false => (200, result(json!(found))),
            }
        } else {
            let checker: Value = serde_json::from_str(form.get("healthChecker")?).ok()?;
            if form.get("clusterName")? == "DEFAULT" {
                self.checkers.push(format!("{service} {}", checker["type"].as_str()?));
            }
            (200, result(json!("ok")))
        })
    }

    fn change(&mut self, method: &str, service: String, form: &Form) -> Option<(u16, Value)> {
        let is_ephemeral = form.get("ephemeral").is_none_or(|value| value == "true");
        let key = (
            service,
            form.get("clusterName")?.clone(),
            form.get("ip")?.clone(),
            form.get("port")?.parse().ok()?,
        );
        let present = self.instances.get(&key);
        let is_other = present.is_some_and(|value| value["ephemeral"] != is_ephemeral);
        match method {
            "DELETE" if !is_other => drop(self.instances.remove(&key)),
            // It looks among the others.
            "DELETE" => {}
            "POST" | "PUT" if is_other || (method == "PUT" && present.is_none()) => {
                return Some((400, json!({"code": 21003, "message": "instance error", "data": null})));
            }
            "POST" | "PUT" => {
                let metadata: Value = serde_json::from_str(form.get("metadata")?).ok()?;
                let instance = json!({
                    "ip": key.2, "port": key.3, "clusterName": key.1, "metadata": metadata, "ephemeral": is_ephemeral,
                    "weight": form.get("weight")?.parse::<f64>().ok()?, "healthy": true,
                    "enabled": form.get("enabled")? == "true",
                });
                self.instances.insert(key, instance);
            }
            _ => return None,
        }
        Some((200, result(json!("ok"))))
    }
}

fn result(data: Value) -> Value {
    json!({"code": 0, "message": "success", "data": data})
}
