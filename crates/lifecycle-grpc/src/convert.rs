//! Converts hooks between protobuf and the LifecycleHook resource.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;
use podward_api as api;
use podward_proto::v1;
use podward_proto::v1::hook::Connection;
use prost_types::Duration;
use tonic::Status;

use super::hook_store::{OWNER, REGISTERED_BY};
use super::status::hook_name;

/// Returns the resource for a message, with default values. The resource still has to be validated.
///
/// # Errors
/// INVALID_ARGUMENT if the name is invalid, or the resource cannot represent a field.
pub fn to_resource(hook: v1::Hook) -> Result<api::LifecycleHook, Status> {
    let name = hook_name(&hook.namespace, &hook.name)?;
    let (endpoint, attachment) = match hook.connection.clone() {
        Some(Connection::Endpoint(endpoint)) => (Some(to_endpoint(endpoint)), None),
        Some(Connection::Attachment(v1::Attachment {})) => (None, Some(api::Attachment {})),
        None => (None, None),
    };
    let phases = hook.phases.iter().map(|number| to_phase(*number)).collect::<Result<_, _>>()?;
    let spec = api::LifecycleHookSpec {
        pod_selector: hook.pod_selector.map(to_selector),
        namespace_selector: hook.namespace_selector.map(to_selector),
        phases,
        operation_types: hook.operation_types,
        endpoint,
        attachment,
        deadline_seconds: to_seconds(hook.deadline.as_ref())?,
        deadline_policy: to_deadline_policy(hook.deadline_policy)?,
        failure_policy: to_failure_policy(hook.failure_policy)?,
        post_check_rejection: to_rejection(hook.post_check_rejection)?,
        namespace: Some(hook.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        order: hook.order,
        prepare_timing: to_timing("prepare_timing", hook.prepare_timing, api::GateTiming::AfterGate)?,
        complete_timing: to_timing("complete_timing", hook.complete_timing, api::GateTiming::BeforeGate)?,
        max_concurrent_calls: if hook.max_concurrent_calls == 0 { 64 } else { hook.max_concurrent_calls },
        call_timeout_milliseconds: to_milliseconds(hook.call_timeout.as_ref())?,
    };
    Ok(api::LifecycleHook::new(&name.object_name(), spec))
}

/// Returns the message for the resource.
#[must_use]
pub fn from_resource(resource: &api::LifecycleHook) -> v1::Hook {
    let spec = resource.spec.clone();
    let connection = match (spec.endpoint, spec.attachment) {
        (Some(endpoint), _) => Some(Connection::Endpoint(v1::Endpoint {
            url: endpoint.url,
            ca_certificates: endpoint.ca_certificates,
            server_name: endpoint.server_name.unwrap_or_default(),
        })),
        (None, Some(api::Attachment {})) => Some(Connection::Attachment(v1::Attachment {})),
        (None, None) => None,
    };
    v1::Hook {
        name: match api::HookName::of(resource) {
            Ok(name) => name.name().to_owned(),
            Err(_) => resource.metadata.name.clone().unwrap_or_default(),
        },
        namespace: spec.namespace.unwrap_or_default(),
        pod_selector: spec.pod_selector.map(from_selector),
        namespace_selector: spec.namespace_selector.map(from_selector),
        phases: spec.phases.into_iter().map(|phase| from_phase(phase).into()).collect(),
        operation_types: spec.operation_types,
        connection,
        deadline: Some(Duration { seconds: spec.deadline_seconds.into(), nanos: 0 }),
        deadline_policy: match spec.deadline_policy {
            api::DeadlinePolicy::Hold => v1::DeadlinePolicy::Hold,
            api::DeadlinePolicy::Proceed => v1::DeadlinePolicy::Proceed,
            api::DeadlinePolicy::Cancel => v1::DeadlinePolicy::Cancel,
        }
        .into(),
        failure_policy: match spec.failure_policy {
            api::FailurePolicy::Fail => v1::FailurePolicy::Fail,
            api::FailurePolicy::Ignore => v1::FailurePolicy::Ignore,
        }
        .into(),
        post_check_rejection: match spec.post_check_rejection {
            api::PostCheckRejection::Hold => v1::PostCheckRejection::Hold,
            api::PostCheckRejection::Rollback => v1::PostCheckRejection::Rollback,
        }
        .into(),
        order: spec.order,
        prepare_timing: from_timing(spec.prepare_timing).into(),
        complete_timing: from_timing(spec.complete_timing).into(),
        max_concurrent_calls: spec.max_concurrent_calls,
        call_timeout: Some(from_milliseconds(spec.call_timeout_milliseconds)),
    }
}

/// Returns the hook and its status.
pub(super) fn hook_state(resource: &api::LifecycleHook) -> v1::HookState {
    let status = resource.status.clone().unwrap_or_default();
    let annotation = |key: &str| resource.annotations().get(key).cloned().unwrap_or_default();
    v1::HookState {
        hook: Some(from_resource(resource)),
        reachable: status.conditions.iter().any(|condition| is_true(condition, "Reachable")),
        last_answer_time: status.last_answer_time.map(|time| timestamp(time.0)),
        calls_in_flight: status.calls_in_flight,
        latency_p50: status.latency_p50_milliseconds.map(from_milliseconds),
        latency_p99: status.latency_p99_milliseconds.map(from_milliseconds),
        last_error: status.last_error.unwrap_or_default(),
        owner: annotation(OWNER),
        registered_by: annotation(REGISTERED_BY),
    }
}

fn is_true(condition: &Condition, kind: &str) -> bool {
    condition.type_ == kind && condition.status == "True"
}

/// Returns `time` as a protobuf timestamp.
pub(super) fn timestamp(time: jiff::Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: time.as_second(), nanos: time.subsec_nanosecond() }
}

fn to_endpoint(endpoint: v1::Endpoint) -> api::Endpoint {
    api::Endpoint {
        url: endpoint.url,
        ca_certificates: endpoint.ca_certificates,
        server_name: Some(endpoint.server_name).filter(|name| !name.is_empty()),
    }
}

fn to_selector(selector: v1::LabelSelector) -> LabelSelector {
    let requirements = selector.match_expressions.into_iter().map(|requirement| LabelSelectorRequirement {
        key: requirement.key,
        operator: requirement.operator,
        values: Some(requirement.values).filter(|values| !values.is_empty()),
    });
    let requirements: Vec<_> = requirements.collect();
    let labels: BTreeMap<_, _> = selector.match_labels.into_iter().collect();
    LabelSelector {
        match_labels: Some(labels).filter(|labels| !labels.is_empty()),
        match_expressions: Some(requirements).filter(|requirements| !requirements.is_empty()),
    }
}

fn from_selector(selector: LabelSelector) -> v1::LabelSelector {
    let requirements = selector.match_expressions.into_iter().flatten();
    v1::LabelSelector {
        match_labels: selector.match_labels.unwrap_or_default().into_iter().collect(),
        match_expressions: requirements
            .map(|requirement| v1::LabelSelectorRequirement {
                key: requirement.key,
                operator: requirement.operator,
                values: requirement.values.unwrap_or_default(),
            })
            .collect(),
    }
}

fn to_phase(number: i32) -> Result<api::Phase, Status> {
    match v1::Phase::try_from(number) {
        Ok(v1::Phase::PreCheck) => Ok(api::Phase::PreCheck),
        Ok(v1::Phase::Prepare) => Ok(api::Phase::Prepare),
        Ok(v1::Phase::PostCheck) => Ok(api::Phase::PostCheck),
        Ok(v1::Phase::Complete) => Ok(api::Phase::Complete),
        Ok(v1::Phase::Release) => Ok(api::Phase::Release),
        Ok(v1::Phase::Unspecified) | Err(_) => Err(unknown("phases", number)),
    }
}

fn from_phase(phase: api::Phase) -> v1::Phase {
    match phase {
        api::Phase::PreCheck => v1::Phase::PreCheck,
        api::Phase::Prepare => v1::Phase::Prepare,
        api::Phase::PostCheck => v1::Phase::PostCheck,
        api::Phase::Complete => v1::Phase::Complete,
        api::Phase::Release => v1::Phase::Release,
    }
}

fn to_deadline_policy(number: i32) -> Result<api::DeadlinePolicy, Status> {
    match v1::DeadlinePolicy::try_from(number) {
        Ok(v1::DeadlinePolicy::Unspecified | v1::DeadlinePolicy::Hold) => Ok(api::DeadlinePolicy::Hold),
        Ok(v1::DeadlinePolicy::Proceed) => Ok(api::DeadlinePolicy::Proceed),
        Ok(v1::DeadlinePolicy::Cancel) => Ok(api::DeadlinePolicy::Cancel),
        Err(_) => Err(unknown("deadline_policy", number)),
    }
}

fn to_failure_policy(number: i32) -> Result<api::FailurePolicy, Status> {
    match v1::FailurePolicy::try_from(number) {
        Ok(v1::FailurePolicy::Unspecified | v1::FailurePolicy::Fail) => Ok(api::FailurePolicy::Fail),
        Ok(v1::FailurePolicy::Ignore) => Ok(api::FailurePolicy::Ignore),
        Err(_) => Err(unknown("failure_policy", number)),
    }
}

fn to_rejection(number: i32) -> Result<api::PostCheckRejection, Status> {
    match v1::PostCheckRejection::try_from(number) {
        Ok(v1::PostCheckRejection::Unspecified | v1::PostCheckRejection::Hold) => {
            Ok(api::PostCheckRejection::Hold)
        }
        Ok(v1::PostCheckRejection::Rollback) => Ok(api::PostCheckRejection::Rollback),
        Err(_) => Err(unknown("post_check_rejection", number)),
    }
}

fn to_timing(field: &str, number: i32, default: api::GateTiming) -> Result<api::GateTiming, Status> {
    match v1::GateTiming::try_from(number) {
        Ok(v1::GateTiming::Unspecified) => Ok(default),
        Ok(v1::GateTiming::BeforeGate) => Ok(api::GateTiming::BeforeGate),
        Ok(v1::GateTiming::AfterGate) => Ok(api::GateTiming::AfterGate),
        Err(_) => Err(unknown(field, number)),
    }
}

fn from_timing(timing: api::GateTiming) -> v1::GateTiming {
    match timing {
        api::GateTiming::BeforeGate => v1::GateTiming::BeforeGate,
        api::GateTiming::AfterGate => v1::GateTiming::AfterGate,
    }
}

fn unknown(field: &str, number: i32) -> Status {
    Status::invalid_argument(format!("hook.{field}: {number} is not a known value"))
}

fn to_seconds(deadline: Option<&Duration>) -> Result<u32, Status> {
    let Some(deadline) = deadline else { return Ok(300) };
    let seconds = u32::try_from(deadline.seconds).ok().filter(|_| deadline.nanos == 0);
    seconds.ok_or_else(|| {
        Status::invalid_argument("hook.deadline must be whole seconds, from 1 s to 86400 s (24 hours)")
    })
}

fn to_milliseconds(timeout: Option<&Duration>) -> Result<u32, Status> {
    let Some(timeout) = timeout else { return Ok(10_000) };
    let is_whole = (0..1_000_000_000).contains(&timeout.nanos) && timeout.nanos % 1_000_000 == 0;
    let milliseconds = timeout.seconds.checked_mul(1000);
    let milliseconds =
        milliseconds.and_then(|seconds| seconds.checked_add(i64::from(timeout.nanos / 1_000_000)));
    milliseconds.filter(|_| is_whole).and_then(|milliseconds| u32::try_from(milliseconds).ok()).ok_or_else(
        || Status::invalid_argument("hook.call_timeout must be whole milliseconds, from 100 ms to 60 s"),
    )
}

fn from_milliseconds(milliseconds: u32) -> Duration {
    let nanos = i32::try_from(milliseconds % 1000 * 1_000_000).unwrap_or_default();
    Duration { seconds: (milliseconds / 1000).into(), nanos }
}
