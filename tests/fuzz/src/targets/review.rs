//! Admission reviews: the body of a request to either webhook, until its response.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use mutating_webhook::{ConsumerHooks, MutatingWebhook};
use podward_core::ReviewPolicy;
use podward_runtime::admission::{AdmissionLimits, AdmissionMetrics, AdmissionService};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use validating_webhook::PodWebhook;

use super::samples;
use crate::input::Input;
use crate::outcome::Outcome;
use crate::target::{Format, Target};

/// The paths, each with the number of the service that serves it.
const PATHS: [(&str, usize); 6] =
    [("/mutate", 0), ("/inject", 0), ("/validate", 1), ("/delete", 1), ("/evict", 1), ("/mutate", 2)];
/// A response may repeat parts of a review: escaped, and in several messages.
const MAX_GROWTH: usize = 32;
const MAX_RESPONSE: usize = 64 * 1024;

pub(super) fn target() -> Target {
    let pods = samples::pods();
    let mut seeds = Vec::new();
    for (variant, (path, _)) in (0_u8..).zip(PATHS) {
        for (number, pod) in pods.iter().enumerate() {
            let old = pods[number.saturating_sub(1)].clone();
            seeds.push(Input::new(variant, review(path, &old, pod).to_string()));
        }
    }
    let reviews = Reviews::new();
    Target::new("review", Format::Json, seeds, move |input| reviews.send(input))
}

fn review(path: &str, old: &Value, new: &Value) -> Value {
    let (operation, sub_resource, object, old) = match path {
        "/inject" => ("CREATE", "", new.clone(), Value::Null),
        "/delete" => ("DELETE", "", Value::Null, new.clone()),
        "/evict" => {
            let options = json!({"gracePeriodSeconds": 3});
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web-0", "namespace": "shop"},
                "deleteOptions": options,
            });
            ("CREATE", "eviction", eviction, Value::Null)
        }
        _ => ("UPDATE", "", new.clone(), old.clone()),
    };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": sub_resource,
            "name": "web-0", "namespace": "shop", "operation": operation,
            "userInfo": {"username": "system:serviceaccount:shop:operator", "groups": ["system:authenticated"]},
            "object": object, "oldObject": old, "dryRun": false,
            "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 5},
        },
    })
}

struct Reviews {
    runtime: Option<Runtime>,
    services: [AdmissionService; 3],
}

impl Reviews {
    fn new() -> Self {
        let trusted = || vec!["system:serviceaccount:podward-system:lifecycle-controller".to_owned()];
        let policy = |strict| ReviewPolicy { strict, trusted: trusted() };
        let limits = || AdmissionLimits::default();
        let mutating = |strict| {
            let webhook = MutatingWebhook::new(policy(strict), ConsumerHooks::default());
            AdmissionService::new(webhook, AdmissionMetrics::default(), limits())
        };
        let validating = PodWebhook::new(policy(false));
        let validating = AdmissionService::new(validating, AdmissionMetrics::default(), limits());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok();
        Self { runtime, services: [mutating(false), validating, mutating(true)] }
    }

    /// Sends a review, and checks what must hold for every response.
    fn send(&self, input: &Input) -> Result<Outcome, String> {
        let runtime = self.runtime.as_ref().ok_or("there is no async runtime")?;
        let (path, service) = PATHS[usize::from(input.variant) % PATHS.len()];
        let request = Request::post(path).header("content-type", "application/json");
        let body = Full::new(Bytes::from(input.body.clone()));
        let request = request.body(body).map_err(|error| error.to_string())?;
        let (status, answer) = runtime.block_on(async {
            let response = self.services[service].handle(request).await;
            let status = response.status();
            (status, response.into_body().collect().await.map(|body| body.to_bytes()))
        });
        let answer = answer.map_err(|error| format!("the response cannot be read: {error}"))?;
        if answer.len() > input.body.len() * MAX_GROWTH + MAX_RESPONSE {
            return Err(format!("{} bytes answer {} bytes", answer.len(), input.body.len()));
        }
        let mut outcome = Outcome::of((path, status.as_u16()));
        match status {
            StatusCode::OK => check(&answer, &mut outcome)?,
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
                outcome.text(&String::from_utf8_lossy(&answer));
            }
            // The path, the method and the type of the content are right.
            _ => return Err(format!("answered with {status}: {}", String::from_utf8_lossy(&answer))),
        }
        Ok(outcome)
    }
}

/// Checks the response to a review.
fn check(answer: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    let answer: Value = serde_json::from_slice(answer).map_err(|error| format!("it is not JSON: {error}"))?;
    let response = &answer["response"];
    let uid = response["uid"].as_str().unwrap_or_default();
    let allowed = response["allowed"].as_bool().ok_or("neither allowed nor denied")?;
    let message = response["status"]["message"].as_str().unwrap_or_default();
    let patch = response["patch"].as_str();
    if uid.is_empty() {
        return Err("a response without the uid of its review".to_owned());
    }
    if !allowed && (message.is_empty() || patch.is_some()) {
        return Err(format!("denied without a reason, or with a patch: {response}"));
    }
    outcome.add(allowed);
    outcome.text(message);
    outcome.size(patch.map_or(0, str::len));
    for warning in response["warnings"].as_array().into_iter().flatten() {
        outcome.text(warning.as_str().unwrap_or_default());
    }
    Ok(())
}
