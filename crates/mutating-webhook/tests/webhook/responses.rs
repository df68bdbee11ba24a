//! The responses to reviews.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use mutating_webhook::ConsumerHooks;
use podward_core::hooks::{
    DeadlinePolicy, FailurePolicy, GateTiming, Hook, HookPhase, Selector, consumer_key_of, hook_finalizer,
};
use podward_core::keys::{
    AVAILABLE_CONDITIONS, CONTROL_LABEL, DELETE_TIMESTAMP, DELETION_REQUEST, PREPARING_TO_DELETE,
    SERVICE_READY_GATE, Stage, TO_DELETE, TO_DELETE_BY, permission_key,
};
use podward_runtime::admission::AdmissionService;
use serde_json::{Value, json};

use crate::reviews::{CONTROLLER, OPERATOR, UID, pod, review};
use crate::{post, send, service, service_with};

/// Returns the `response` to a review, and the object with the patch applied.
async fn response_to(path: &str, strict: bool, review: &Value) -> (Value, Value) {
    response_of(&service(strict), path, review).await
}

async fn response_of(service: &AdmissionService, path: &str, review: &Value) -> (Value, Value) {
    let (status, body) = send(service, post(path, review.to_string())).await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&answer["apiVersion"], &answer["kind"]), (&review["apiVersion"], &review["kind"]));
    let response = answer["response"].clone();
    assert_eq!(response["uid"], UID);
    let mut object = review["request"]["object"].clone();
    if let Some(patch) = response.get("patch") {
        assert_eq!(response["patchType"], "JSONPatch");
        let patch = serde_json::from_value::<k8s_openapi::ByteString>(patch.clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    (response, object)
}

fn labels(object: &Value) -> Vec<&str> {
    object["metadata"]["labels"].as_object().unwrap().keys().map(String::as_str).collect()
}

fn announced() -> Vec<(String, &'static str)> {
    vec![(Stage::Operating.key("a"), "1"), (Stage::OperationType.key("a"), "update")]
}

fn as_refs<'a>(labels: &'a [(String, &'a str)]) -> Vec<(&'a str, &'a str)> {
    labels.iter().map(|(key, value)| (key.as_str(), *value)).collect()
}

#[tokio::test]
async fn a_new_pod_gets_the_gate() {
    let mut new = pod(&[]);
    new["spec"].as_object_mut().unwrap().remove("readinessGates");
    let (response, object) = response_to("/mutate", false, &review("CREATE", Value::Null, new)).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(object["spec"]["readinessGates"], json!([{"conditionType": SERVICE_READY_GATE}]));
}

#[tokio::test]
async fn injection_opts_in_and_mutation_alone_does_not() {
    let mut new = pod(&[]);
    new["metadata"].as_object_mut().unwrap().remove("labels");
    new["spec"].as_object_mut().unwrap().remove("readinessGates");
    let review = review("CREATE", Value::Null, new.clone());
    let (_, object) = response_to("/inject", false, &review).await;
    assert_eq!(object["metadata"]["labels"], json!({CONTROL_LABEL: "true"}));
    assert_eq!(object["spec"]["readinessGates"], json!([{"conditionType": SERVICE_READY_GATE}]));
    let (_, object) = response_to("/mutate", false, &review).await;
    assert_eq!(object, new);
}

#[tokio::test]
async fn an_announcement_gets_pre_check_also_in_a_dry_run() {
    let begin = announced();
    let mut review = review("UPDATE", pod(&[]), pod(&as_refs(&begin)));
    for dry_run in [false, true] {
        review["request"]["dryRun"] = json!(dry_run);
        let (response, object) = response_to("/mutate", true, &review).await;
        assert_eq!((&response["allowed"], response.get("warnings")), (&json!(true), None));
        assert!(labels(&object).contains(&Stage::PreCheck.key("a").as_str()), "{object}");
    }
}

#[tokio::test]
async fn a_status_write_takes_the_step_that_depends_on_it() {
    let mut held = announced();
    held.extend([
        (Stage::PreChecked.key("a"), "2"),
        (permission_key("update"), "2"),
        (Stage::Preparing.key("a"), "3"),
    ]);
    let held = pod(&as_refs(&held));
    let mut new = held.clone();
    new["status"]["conditions"][1]["status"] = json!("False");
    let mut review = review("UPDATE", held, new);
    review["request"]["subResource"] = json!("status");
    review["request"]["userInfo"]["username"] = json!(CONTROLLER);
    let (response, object) = response_to("/mutate", true, &review).await;
    assert_eq!(response["allowed"], true);
    let labels = labels(&object);
    assert!(
        labels.contains(&Stage::Operate.key("a").as_str())
            && !labels.contains(&Stage::Preparing.key("a").as_str())
    );
}

#[tokio::test]
async fn a_write_without_a_step_gets_no_patch() {
    let (response, _) = response_to("/mutate", true, &review("UPDATE", pod(&[]), pod(&[("app", "x")]))).await;
    assert_eq!(response, json!({"uid": UID, "allowed": true}));
}

#[tokio::test]
async fn an_incomplete_operation_causes_a_warning_or_a_denial() {
    let half = review("UPDATE", pod(&[]), pod(&[(&Stage::Operating.key("a"), "1")]));
    let (response, _) = response_to("/mutate", false, &half).await;
    assert_eq!(response["allowed"], true);
    assert!(response["warnings"][0].as_str().unwrap().contains("operation-type"), "{response}");
    let (response, _) = response_to("/mutate", true, &half).await;
    assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(403)));
    assert!(response["status"]["message"].as_str().unwrap().contains("operation-type"));
}

#[tokio::test]
async fn a_protected_label_of_an_untrusted_writer_causes_a_warning_or_a_denial_also_through_the_status() {
    let begin = announced();
    let mut forged = begin.clone();
    forged.push((Stage::Operate.key("a"), "9"));
    let mut review = review("UPDATE", pod(&as_refs(&begin)), pod(&as_refs(&forged)));
    for sub_resource in ["", "status"] {
        review["request"]["subResource"] = json!(sub_resource);
        let (response, _) = response_to("/mutate", false, &review).await;
        assert!(response["warnings"].to_string().contains("only Podward writes"), "{response}");
        let (response, _) = response_to("/mutate", true, &review).await;
        assert_eq!(response["status"]["code"], 403);
    }
    review["request"]["userInfo"]["username"] = json!(CONTROLLER);
    let (response, _) = response_to("/mutate", true, &review).await;
    assert_eq!((&response["allowed"], response.get("warnings")), (&json!(true), None));
}

/// Returns the object that `user` stores with a write.
async fn written_by(user: &str, old: &Value, new: &Value) -> Value {
    let mut review = review("UPDATE", old.clone(), new.clone());
    review["request"]["userInfo"]["username"] = json!(user);
    let (response, object) = response_to("/mutate", false, &review).await;
    assert_eq!(response["allowed"], true, "{response}");
    object
}

async fn warnings_of(old: &Value, new: &Value) -> String {
    let (response, _) = response_to("/mutate", false, &review("UPDATE", old.clone(), new.clone())).await;
    response["warnings"].to_string()
}

/// Returns the text that names the author of the label.
fn author(user: &str) -> String {
    format!(r#"{{"user":"{user}","groups":["system:authenticated"]}}"#)
}

/// Returns a pod that has not opted in, on which somebody who may only patch pods has set `marks`.
fn planted(marks: &Value) -> Value {
    let begun = [Stage::Operating.key("pod-delete"), Stage::OperationType.key("pod-delete")];
    let mut old =
        pod(&[(TO_DELETE, "1"), (PREPARING_TO_DELETE, "1"), (&begun[0], "1"), (&begun[1], "delete")]);
    old["metadata"]["labels"][CONTROL_LABEL] = json!("false");
    old["metadata"]["annotations"] = marks.clone();
    old
}

#[tokio::test]
async fn a_deletion_request_from_before_the_opt_in_is_removed() {
    let request = r#"{"kind":"Delete","requestedBy":"admin","requestedAt":1}"#;
    for user in [OPERATOR, CONTROLLER] {
        // The annotation may also name the user who opts the pod in.
        for forged in [author("admin"), author(user)] {
            for marks in [
                json!({}),
                json!({TO_DELETE_BY: forged}),
                json!({TO_DELETE_BY: forged, DELETION_REQUEST: request, DELETE_TIMESTAMP: "1"}),
            ] {
                let old = planted(&marks);
                let mut new = old.clone();
                new["metadata"]["labels"][CONTROL_LABEL] = json!("true");
                let stored = written_by(user, &old, &new).await;
                assert_eq!(labels(&stored), [CONTROL_LABEL], "{user} {marks}");
                for key in [TO_DELETE_BY, DELETION_REQUEST, DELETE_TIMESTAMP] {
                    assert_eq!(stored["metadata"]["annotations"][key], Value::Null, "{user} {marks}");
                }
                assert_eq!(written_by(user, &old, &stored).await, stored, "once is enough");
                assert!(warnings_of(&old, &new).await.contains("the deletion request is removed"));

                // Whoever sets the label in the same write is its author.
                new["metadata"]["labels"][TO_DELETE] = json!("2");
                let stored = written_by(user, &old, &new).await;
                assert_eq!(warnings_of(&old, &new).await, "null", "its request stands");
                assert_eq!(stored["metadata"]["labels"][TO_DELETE], "2", "{user} {marks}");
                assert_eq!(stored["metadata"]["annotations"][TO_DELETE_BY], author(user), "{user} {marks}");
                assert_eq!(
                    stored["metadata"]["annotations"][DELETION_REQUEST],
                    Value::Null,
                    "{user} {marks}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_trusted_writer_is_the_author_of_a_label_unless_it_names_a_user() {
    let labelled = pod(&[(TO_DELETE, "1")]);
    for user in [OPERATOR, CONTROLLER] {
        let stored = written_by(user, &pod(&[]), &labelled).await;
        assert_eq!(stored["metadata"]["annotations"][TO_DELETE_BY], author(user));
        // Everybody may withdraw the request. A label without an author deletes nothing.
        let mut recorded = stored.clone();
        recorded["metadata"]["annotations"][DELETION_REQUEST] = json!("{}");
        let withdrawn = written_by(user, &recorded, &stored).await;
        assert_eq!(withdrawn["metadata"]["annotations"][TO_DELETE_BY], Value::Null, "{user}");
    }
    for named in [json!({DELETION_REQUEST: "{}"}), json!({TO_DELETE_BY: author("jane")})] {
        let mut new = labelled.clone();
        new["metadata"]["annotations"] = named.clone();
        let stored = written_by(CONTROLLER, &pod(&[]), &new).await;
        assert_eq!(stored["metadata"]["annotations"], named);
    }
}

#[tokio::test]
async fn reviews_of_other_resources_and_operations_are_reported() {
    let mut deployment = review("UPDATE", pod(&[]), pod(&[]));
    deployment["request"]["resource"] = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    let (response, _) = response_to("/mutate", false, &deployment).await;
    assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(400)));
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("pods and pods/status of v1, not deployments of apps/v1"), "{message}");

    let (response, _) = response_to("/mutate", false, &review("DELETE", pod(&[]), Value::Null)).await;
    assert_eq!(response["allowed"], true);
    assert!(response["warnings"][0].as_str().unwrap().contains("does not review DELETE"), "{response}");

    let (response, _) = response_to("/mutate", false, &review("UPDATE", pod(&[]), Value::Null)).await;
    assert_eq!(response["status"]["code"], 400);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_denied_with_the_reason() {
    let mut broken = pod(&[]);
    broken["metadata"]["labels"] = json!("none");
    let (response, _) = response_to("/mutate", false, &review("UPDATE", pod(&[]), broken)).await;
    assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(400)));
    assert!(response["status"]["message"].as_str().unwrap().contains("could not be read"));
}

#[tokio::test]
async fn a_request_without_a_review_gets_an_http_status() {
    let service = service(false);
    let whole = review("UPDATE", pod(&[]), pod(&[])).to_string();
    let with = |method: Method, path: &str, content_type: &str, body: &str| {
        let body = Full::new(Bytes::from(body.to_owned()));
        Request::builder().method(method).uri(path).header("content-type", content_type).body(body).unwrap()
    };
    let json = "application/json; charset=utf-8";
    let version = whole.replace("admission.k8s.io/v1", "admission.k8s.io/v9");
    let too_large = format!("{whole}{}", " ".repeat(100_000));
    for (request, status, words) in [
        (with(Method::POST, "/mutate", json, &whole), StatusCode::OK, UID),
        (with(Method::POST, "/mutat", json, &whole), StatusCode::NOT_FOUND, "/mutate or /inject"),
        (with(Method::GET, "/mutate", json, ""), StatusCode::METHOD_NOT_ALLOWED, "POST"),
        (
            with(Method::POST, "/mutate", "text/plain", &whole),
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "application/json",
        ),
        (
            with(Method::POST, "/mutate", json, &too_large),
            StatusCode::PAYLOAD_TOO_LARGE,
            "larger than 100000 bytes",
        ),
        (with(Method::POST, "/mutate", json, "{"), StatusCode::BAD_REQUEST, "not JSON"),
        (with(Method::POST, "/mutate", json, "{}"), StatusCode::BAD_REQUEST, "expected admission.k8s.io/v1"),
        (with(Method::POST, "/mutate", json, &version), StatusCode::BAD_REQUEST, "admissionReviewVersions"),
    ] {
        let (found, body) = send(&service, request).await;
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(found == status && body.contains(words), "{found} {body}");
    }
}

/// Returns a hook. Hooks whose names begin with `p` are not consumers. The hook `of-web` selects pods labelled app=web.
fn hook(name: &str) -> Hook {
    let app = if name == "of-web" { vec![("app".to_owned(), "web".to_owned())] } else { Vec::new() };
    Hook {
        name: name.to_owned(),
        pod_selector: Selector::new(app.into_iter().collect(), []).unwrap(),
        namespace_selector: Selector::everything(),
        phases: vec![if name.starts_with('p') { HookPhase::PreCheck } else { HookPhase::Prepare }],
        operation_types: Vec::new(),
        order: 0,
        deadline_nanoseconds: 1,
        deadline_policy: DeadlinePolicy::default(),
        failure_policy: FailurePolicy::default(),
        post_check_rejection: podward_core::PostCheckRejection::default(),
        prepare_timing: GateTiming::AfterGate,
        complete_timing: GateTiming::BeforeGate,
    }
}

#[tokio::test]
async fn a_new_pod_lists_its_expected_consumers() {
    let consumers: ConsumerHooks = ["all", "of-web", "pre"].into_iter().map(hook).collect();
    let service = service_with(false, consumers);
    let expected = async |path: &str, labels: Value| {
        let mut new = pod(&[]);
        new["metadata"]["labels"] = labels;
        // Controllers create pods without a name, and without a namespace in the object.
        let metadata = new["metadata"].as_object_mut().unwrap();
        metadata.remove("name").unwrap();
        metadata.remove("namespace").unwrap();
        metadata.insert("generateName".to_owned(), json!("web-"));
        let mut review = review("CREATE", Value::Null, new);
        review["request"]["name"] = json!("");
        review["request"]["dryRun"] = json!(true);
        let (_, object) = response_of(&service, path, &review).await;
        let text =
            object["metadata"]["annotations"][AVAILABLE_CONDITIONS].as_str().unwrap_or("{}").to_owned();
        let annotation: Value = serde_json::from_str(&text).unwrap();
        annotation["expectedFinalizers"].clone()
    };
    assert_eq!(
        expected("/mutate", json!({CONTROL_LABEL: "true", "app": "web"})).await,
        json!({consumer_key_of("all"): hook_finalizer("all"), consumer_key_of("of-web"): hook_finalizer("of-web")})
    );
    let all = json!({consumer_key_of("all"): hook_finalizer("all")});
    assert_eq!(expected("/mutate", json!({CONTROL_LABEL: "true", "app": "db"})).await, all);
    assert_eq!(expected("/inject", json!({"app": "db"})).await, all);
    assert_eq!(expected("/mutate", json!({"app": "web"})).await, Value::Null, "the pod has not opted in");
}
