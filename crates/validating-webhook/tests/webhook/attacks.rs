//! Attacks by users who may update pods, but not delete them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use podward_core::ReviewPolicy;
use podward_core::keys::{BREAK_GLASS, CONTROL_LABEL, DELETION_REQUEST, Stage, TO_DELETE, permission_key};
use podward_runtime::WebhookSetup;
use podward_runtime::admission::{AdmissionLimits, AdmissionMetrics, AdmissionService};
use podward_support::api_answers::{failure, json_answer};
use podward_support::metrics_text;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use validating_webhook::{PodWebhook, WriterRights};

use crate::fake_cluster::WITHOUT_RIGHTS;
use crate::fixture::{Fixture, UID, delete_review};

/// An API server that knows the rights of users: `joe` may only update pods, `jane` may delete them, `admin` may delete
/// them without draining, and `sam` may delete only the pod `web-0`.
#[derive(Clone)]
struct Rights {
    questions: Arc<Mutex<Vec<Value>>>,
    events: Arc<watch::Sender<Vec<Value>>>,
    is_down: bool,
}

impl Rights {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                assert_eq!(head.method, Method::POST, "{}", head.uri);
                let sent: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
                if !head.uri.path().ends_with("/subjectaccessreviews") {
                    server.events.send_modify(|events| events.push(sent.clone()));
                    return Ok::<_, Infallible>(json_answer(&sent));
                }
                if server.is_down {
                    return Ok(failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"));
                }
                let (user, asked) =
                    (sent["spec"]["user"].as_str().unwrap(), &sent["spec"]["resourceAttributes"]);
                assert_eq!((&asked["resource"], &asked["namespace"]), (&json!("pods"), &json!("shop")));
                let group = if asked["verb"] == "break-glass" { "podward.io" } else { "" };
                assert_eq!(asked["group"], group);
                let allowed = matches!(
                    (user, asked["verb"].as_str().unwrap(), asked["name"].as_str()),
                    ("jane" | "admin", "delete", _)
                        | ("admin", "break-glass", _)
                        | ("sam", "delete", Some("web-0"))
                );
                server.questions.lock().push(sent.clone());
                let mut answer = sent;
                answer["status"] = json!({"allowed": allowed});
                Ok(json_answer(&answer))
            }
        });
        Client::new(service, "default")
    }
}

struct Attack {
    api: Rights,
    setup: WebhookSetup,
    service: AdmissionService,
}

impl Attack {
    fn new(strict: bool) -> Self {
        Self::with(strict, false)
    }

    fn with(strict: bool, is_down: bool) -> Self {
        let api =
            Rights { questions: Arc::default(), events: Arc::new(watch::channel(Vec::new()).0), is_down };
        let mut setup = WebhookSetup::new("test", "1", CancellationToken::new());
        let policy = ReviewPolicy { strict, trusted: vec!["controller".to_owned()] };
        let rights = WriterRights::new(api.client(), None, &mut setup);
        let webhook = PodWebhook::new(policy).with_rights(rights);
        let service = AdmissionService::new(webhook, AdmissionMetrics::default(), AdmissionLimits::default());
        Self { api, setup, service }
    }

    async fn write(&self, user: &str, old: &Value, new: &Value) -> Value {
        self.send(json!({
            "uid": UID, "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "name": "web-0",
            "namespace": "shop", "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": user, "uid": "u", "groups": ["g"], "extra": {"e": ["1"]}},
            "object": new, "oldObject": old,
        }))
        .await
    }

    async fn send(&self, review: Value) -> Value {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review});
        let request = Request::post("/validate").header("content-type", "application/json");
        let response = self.service.handle(request.body(Full::from(body.to_string())).unwrap()).await;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        answer["response"].clone()
    }

    /// Waits for the first event with `reason`. Returns it.
    async fn event(&self, reason: &str) -> Value {
        let mut events = self.api.events.subscribe();
        let found = |events: &Vec<Value>| events.iter().find(|event| event["reason"] == reason).cloned();
        let wait =
            async { found(&events.wait_for(|events| found(events).is_some()).await.unwrap()).unwrap() };
        tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap()
    }
}

fn pod(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Value {
    let mut pod = json!({"metadata": {
        "name": "web-0", "namespace": "shop", "uid": "7", "labels": {CONTROL_LABEL: "true"}, "annotations": {},
    }});
    for (key, value) in labels {
        pod["metadata"]["labels"][*key] = json!(value);
    }
    for (key, value) in annotations {
        pod["metadata"]["annotations"][*key] = json!(value);
    }
    pod
}

fn plain() -> Value {
    pod(&[], &[])
}

fn code(response: &Value) -> u64 {
    response["status"]["code"].as_u64().unwrap_or(200)
}

#[tokio::test]
async fn a_user_who_may_only_patch_pods_is_warned_or_denied_when_setting_to_delete() {
    let marked = pod(&[(TO_DELETE, "1")], &[]);
    let attack = Attack::new(false);
    let response = attack.write("joe", &plain(), &marked).await;
    let warning = response["warnings"].to_string();
    assert!(response["allowed"] == true && warning.contains("user joe may not delete pods"), "{response}");
    let event = attack.event("DeletionMarkNotAllowed").await;
    assert!(event["note"].as_str().unwrap().contains("joe"), "{event}");
    let strict = Attack::new(true);
    for old in [plain(), Value::Null] {
        let response = strict.write("joe", &old, &marked).await;
        assert_eq!(code(&response), 403, "{response}");
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.contains("to-delete") && message.contains("ask for a Role"), "{message}");
    }
    for user in ["jane", "sam", "controller"] {
        assert_eq!(
            strict.write(user, &plain(), &marked).await,
            json!({"uid": UID, "allowed": true}),
            "{user}"
        );
    }
    // The whole identity is asked about, at first for all pods of the namespace. Answers are cached.
    let questions = strict.api.questions.lock();
    let asked: Vec<_> = questions.iter().map(|asked| &asked["spec"]["resourceAttributes"]["name"]).collect();
    // joe: all pods, this pod, a collection of pods; jane: all pods; sam: all pods, this pod.
    let named = json!("web-0");
    assert_eq!(asked, [&Value::Null, &named, &Value::Null, &Value::Null, &Value::Null, &named]);
    let first = &questions[0]["spec"];
    assert_eq!((&first["uid"], &first["groups"]), (&json!("u"), &json!(["g"])));
    assert_eq!(first["extra"], json!({"e": ["1"]}));
    let line = r#"podward_privileged_writes_total{right="delete",outcome="denied"} 2"#;
    let metrics = metrics_text(&strict.setup.registry);
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn a_pod_that_was_marked_before_it_opted_in_is_no_way_around() {
    let mut out = pod(&[(TO_DELETE, "1")], &[(BREAK_GLASS, "why")]);
    out["metadata"]["labels"][CONTROL_LABEL] = json!("false");
    let strict = Attack::new(true);
    assert_eq!(strict.write("joe", &plain(), &out).await["allowed"], true);
    let opted_in = pod(&[(TO_DELETE, "1")], &[(BREAK_GLASS, "why")]);
    assert_eq!(code(&strict.write("joe", &out, &opted_in).await), 403);
}

#[tokio::test]
async fn a_forged_deletion_request_is_denied() {
    let forged = r#"{"kind":"Delete","requestedBy":"admin","requestedAt":1}"#;
    for strict in [false, true] {
        let attack = Attack::new(strict);
        let new = pod(&[(TO_DELETE, "1")], &[(DELETION_REQUEST, forged)]);
        // Also by a user who may delete the pod: the request would name another one.
        for user in ["joe", "jane"] {
            let response = attack.write(user, &plain(), &new).await;
            assert_eq!(code(&response), 403, "{response}");
        }
        assert_eq!(attack.write("controller", &plain(), &new).await["allowed"], true);
        // Anybody who may update the pod may cancel.
        assert_eq!(attack.write("joe", &new, &plain()).await["allowed"], true);
    }
}

#[tokio::test]
async fn break_glass_needs_its_own_verb() {
    let attack = Attack::new(false);
    let broken = pod(&[], &[(BREAK_GLASS, "INC-7")]);
    for user in ["joe", "jane"] {
        for old in [plain(), Value::Null] {
            let response = attack.write(user, &old, &broken).await;
            assert_eq!(code(&response), 403, "{response}");
            assert!(response["status"]["message"].as_str().unwrap().contains("verbs [\"break-glass\"]"));
        }
    }
    assert_eq!(attack.write("admin", &plain(), &broken).await["allowed"], true);
    // Later writes need no right, and neither does removing it.
    let mut next = broken.clone();
    next["metadata"]["labels"]["app"] = json!("x");
    assert_eq!(attack.write("joe", &broken, &next).await["allowed"], true);
    assert_eq!(attack.write("joe", &next, &plain()).await["allowed"], true);
}

#[tokio::test]
async fn break_glass_counts_only_for_users_with_its_verb() {
    let fixture = Fixture::new().await;
    let mut broken = crate::fixture::pod();
    broken["metadata"]["annotations"][BREAK_GLASS] = json!("INC-7");
    let mut review = delete_review(&broken);
    assert_eq!(fixture.ask("/delete", &review).await["allowed"], true);
    review["request"]["userInfo"]["username"] = json!(WITHOUT_RIGHTS);
    let response = fixture.ask("/delete", &review).await;
    assert_eq!(code(&response), 429, "{response}");
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("podward.io/break-glass does not count: user mallory may not"), "{message}");
}

#[tokio::test]
async fn events_of_two_writers_are_two_events() {
    let attack = Attack::new(false);
    let held = pod(&[(TO_DELETE, "1")], &[]);
    let mut out = held.clone();
    out["metadata"]["labels"] = json!({});
    for user in ["joe", "jane"] {
        attack.write(user, &held, &out).await;
    }
    let mut events = attack.api.events.subscribe();
    let names =
        |events: &Vec<Value>| events.iter().map(|event| event["note"].to_string()).collect::<String>();
    let both = events.wait_for(|events| names(events).contains("joe") && names(events).contains("jane"));
    tokio::time::timeout(Duration::from_secs(20), both).await.unwrap().unwrap();
}

#[tokio::test]
async fn without_an_answer_about_rights_nothing_is_allowed_that_needs_them() {
    let attack = Attack::with(true, true);
    for new in [pod(&[(TO_DELETE, "1")], &[]), pod(&[], &[(BREAK_GLASS, "x")])] {
        let response = attack.write("admin", &plain(), &new).await;
        assert_eq!(code(&response), 429, "{response}");
    }
    // Other writes, among them opting out, need no answer.
    let mut out = pod(&[(TO_DELETE, "1")], &[]);
    let held = out.clone();
    out["metadata"]["labels"][CONTROL_LABEL] = json!("false");
    assert_eq!(attack.write("joe", &held, &out).await["allowed"], true);
}

#[tokio::test]
async fn opting_out_while_held_is_an_event_with_the_name_of_the_writer() {
    let attack = Attack::new(false);
    let held = pod(&[(TO_DELETE, "1")], &[]);
    let mut out = held.clone();
    out["metadata"]["labels"].as_object_mut().unwrap().remove(CONTROL_LABEL);
    assert_eq!(attack.write("joe", &held, &out).await["allowed"], true);
    let event = attack.event("OptedOut").await;
    assert_eq!(event["regarding"]["uid"], "7");
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("joe") && note.contains("its deletion is requested"), "{note}");
}

#[tokio::test]
async fn a_permission_by_an_untrusted_writer_is_an_event_with_the_name_of_the_writer() {
    let attack = Attack::new(false);
    let (operate, begun, kind) =
        (Stage::Operate.key("x"), Stage::Operating.key("x"), Stage::OperationType.key("x"));
    let forged = pod(&[(&operate, "1"), (&begun, "1"), (&kind, "update")], &[]);
    let response = attack.write("joe", &plain(), &forged).await;
    assert_eq!(response["allowed"], true, "{response}");
    let event = attack.event("UntrustedPermission").await;
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("joe") && note.contains(&operate), "{note}");
}

#[tokio::test]
async fn a_permission_that_was_written_before_the_pod_opted_in_is_no_way_around() {
    let labels = [
        (Stage::Operating.key("x"), "1"),
        (Stage::OperationType.key("x"), "update"),
        (Stage::PreChecked.key("x"), "1"),
        (Stage::Operate.key("x"), "1"),
        (permission_key("update"), "1"),
    ];
    let forged = pod(&labels.each_ref().map(|(key, value)| (key.as_str(), *value)), &[]);
    let mut out = forged.clone();
    out["metadata"]["labels"].as_object_mut().unwrap().remove(CONTROL_LABEL);
    let attack = Attack::new(false);
    assert_eq!(attack.write("joe", &out, &forged).await["allowed"], true);
    let event = attack.event("UntrustedPermission").await;
    assert!(event["note"].as_str().unwrap().contains("joe"), "{event}");
    assert_eq!(code(&Attack::new(true).write("joe", &out, &forged).await), 403);
}

#[tokio::test]
async fn a_dry_run_makes_no_event() {
    let attack = Attack::new(false);
    let held = pod(&[(TO_DELETE, "1")], &[]);
    let mut out = held.clone();
    out["metadata"]["labels"] = json!({});
    let review = json!({
        "uid": UID, "operation": "UPDATE", "name": "web-0", "namespace": "shop", "dryRun": true,
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "userInfo": {"username": "joe"},
        "object": out, "oldObject": held,
    });
    assert_eq!(attack.send(review).await["allowed"], true);
    // The event of a later write is the first.
    attack.write("jane", &held, &out).await;
    assert!(attack.event("OptedOut").await["note"].as_str().unwrap().contains("jane"));
}
