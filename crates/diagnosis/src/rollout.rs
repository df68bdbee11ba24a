//! Workloads whose pods are not as wanted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, ReplicaSet, StatefulSet, StatefulSetSpec, StatefulSetStatus,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_READY_GATE};

use crate::cause::{Case, Cause};
use crate::creation::refused;
use crate::words::{count, shortened};

/// Returns what keeps a Deployment from its rollout, without the causes of its pods. `sets` are its ReplicaSets.
#[must_use]
pub fn of_deployment(deployment: &Deployment, sets: &[ReplicaSet]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let workload = format!("deployment/{name}");
    let object = format!("deployment {namespace}/{name}");
    let status = deployment.status.as_ref();
    let found = |kind: &str| -> Option<&DeploymentCondition> {
        let conditions = status?.conditions.as_deref()?;
        conditions.iter().find(|condition| condition.type_ == kind)
    };
    let at = |condition: &DeploymentCondition| condition.last_transition_time.as_ref().map(|time| time.0);
    if let Some(failure) = found("ReplicaFailure").filter(|it| it.status == "True") {
        let text = failure.message.as_deref().unwrap_or_default();
        causes.push(refused(text, namespace, &workload).since(at(failure)));
    }
    let Some(spec) = deployment.spec.as_ref() else { return causes };
    let wanted = spec.replicas.unwrap_or(1);
    let updated = status.and_then(|status| status.updated_replicas).unwrap_or(0);
    let available = status.and_then(|status| status.available_replicas).unwrap_or(0);
    let all = status.and_then(|status| status.replicas).unwrap_or(0);
    let is_done = updated >= wanted && available >= wanted && all <= wanted;
    if is_done {
        return causes;
    }
    let numbers = format!("{updated} of {wanted} pods updated, {available} available, {all} in all");
    if spec.paused == Some(true) {
        let what = format!("the rollout is paused ({numbers})");
        let since = found("Progressing").and_then(at);
        let next = format!("kubectl -n {namespace} rollout resume {workload}");
        causes.push(Cause::new(Case::Paused, object.clone(), what).since(since).next(next));
    }
    let rolling = spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let unavailable = rolling.and_then(|it| it.max_unavailable.as_ref()).map(|it| amount(it, wanted, false));
    let surge = rolling.and_then(|it| it.max_surge.as_ref()).map(|it| amount(it, wanted, true));
    let old = without_gate(sets, spec.template.metadata.as_ref().and_then(|it| it.labels.as_ref()));
    if let Some(progress) =
        found("Progressing").filter(|it| it.reason.as_deref() == Some("ProgressDeadlineExceeded"))
    {
        let seconds = spec.progress_deadline_seconds.unwrap_or(600);
        let what = format!("the rollout has made no progress for {seconds} s ({numbers})");
        let kubectl = format!("kubectl -n {namespace} rollout");
        let next = format!("{kubectl} status {workload}; {kubectl} undo {workload}");
        causes.push(Cause::new(Case::Rollout, object, what).since(at(progress)).next(next));
    } else if updated < wanted
        && surge == Some(0)
        && unavailable.is_some_and(|most| wanted - available >= most)
    {
        let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
        let wait = spec.min_ready_seconds.filter(|seconds| *seconds > 0 && ready > available);
        let after = wait.map(|seconds| format!(", {seconds} s (minReadySeconds) after it is Ready"));
        let what = format!(
            "the rollout may not add a pod (maxSurge 0) and waits for one to be available{} ({numbers})",
            after.unwrap_or_default()
        );
        let next = format!("kubectl -n {namespace} edit {workload}; maxSurge: 1");
        causes.push(Cause::new(Case::NoSurge, object, what).next(next));
    } else if causes.is_empty() {
        let what = format!("the rollout waits for its pods ({numbers})");
        let next = format!("kubectl -n {namespace} rollout status {workload}");
        let since = found("Progressing").and_then(|it| it.last_update_time.as_ref()).map(|time| time.0);
        causes.push(Cause::new(Case::Rollout, object, what).since(since).next(next));
    }
    if let Some(refused) = causes.first_mut().filter(|it| it.case == Case::Quota)
        && let Some(surge) = surge.filter(|surge| *surge > 0)
        && unavailable == Some(0)
        && updated < all
    {
        refused.evidence.push(format!(
            "the rollout has to add a pod before it removes one (maxSurge {surge}, maxUnavailable 0): {numbers}"
        ));
    }
    if let (Some(old), Some(last)) = (old, causes.last_mut()) {
        last.evidence.push(old);
    }
    causes
}

/// Returns what keeps a StatefulSet from its rollout, without the causes of its pods.
#[must_use]
pub fn of_stateful_set(set: &StatefulSet) -> Vec<Cause> {
    let (Some(spec), Some(status)) = (&set.spec, &set.status) else { return Vec::new() };
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let object = format!("statefulset {namespace}/{name}");
    let wanted = spec.replicas.unwrap_or(1);
    let ready = status.ready_replicas.unwrap_or(0);
    let updated = status.updated_replicas.unwrap_or(0);
    let all = status.replicas;
    let is_running = ready >= wanted && all == wanted;
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        let waits = (!is_running).then(|| {
            let what =
                format!("the StatefulSet waits for its pods ({ready} of {wanted} Ready, {all} in all)");
            let next = format!("kubectl -n {namespace} describe statefulset {name}");
            Cause::new(Case::Rollout, object.clone(), what).next(next)
        });
        return waits.into_iter().chain(old_pods(spec, status, namespace, object)).collect();
    }
    // The current revision stays behind the pods if there is a partition, and is ahead of them after a rollback.
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
    let expected = wanted.saturating_sub(partition).max(0);
    if is_running && updated >= expected {
        return Vec::new();
    }
    // Without a rollout, the pods below the partition are updated too.
    let of = expected.max(updated);
    // Updates do not follow the podManagementPolicy.
    let is_parallel = spec.pod_management_policy.as_deref() == Some("Parallel");
    let order = if all - updated > partition {
        let most = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        match most.map_or(1, |most| amount(most, wanted, false)) {
            ..=1 => ", from the highest number down, one at a time".to_owned(),
            most => format!(", from the highest number down, up to {most} at a time"),
        }
    } else if all < wanted && !is_parallel && status.current_revision == status.update_revision {
        ", one at a time in the order of their numbers".to_owned()
    } else {
        String::new()
    };
    let what = format!(
        "the rollout waits for its pods ({updated} of {of} pods updated, {ready} Ready, {all} in all){order}"
    );
    let next = format!("kubectl -n {namespace} rollout status statefulset/{name}");
    vec![Cause::new(Case::Rollout, object, what).next(next)]
}

/// Returns the pods that the strategy OnDelete leaves as they are until somebody deletes them.
fn old_pods(
    spec: &StatefulSetSpec,
    status: &StatefulSetStatus,
    namespace: &str,
    object: String,
) -> Option<Cause> {
    let old = status.replicas - status.updated_replicas.unwrap_or(0);
    if old <= 0 {
        return None;
    }
    let what = format!(
        "{old} of {} pods have an old template, and stay until they are deleted (updateStrategy OnDelete)",
        status.replicas
    );
    let labels = spec.selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let revision = status.update_revision.as_deref().unwrap_or_default();
    let labels: Vec<_> = labels.chain([format!("controller-revision-hash!={revision}")]).collect();
    let next = format!("kubectl -n {namespace} get pods -l '{}'; delete these pods", labels.join(","));
    Some(Cause::new(Case::Rollout, object, what).next(next))
}

/// Returns why a Job does not go on.
#[must_use]
pub fn of_job(job: &Job) -> Vec<Cause> {
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let object = format!("job {namespace}/{name}");
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let holds = |kind: &str| conditions.iter().find(|it| it.type_ == kind && it.status == "True");
    let ttl = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
    let kept = match ttl {
        Some(seconds) => format!("ttlSecondsAfterFinished: {seconds}; the Job and its pods are deleted then"),
        None => "without ttlSecondsAfterFinished, the Job and its pods stay until somebody deletes them"
            .to_owned(),
    };
    let failed = holds("Failed").or_else(|| holds("FailureTarget"));
    if let Some(failed) = failed {
        let reason = failed.reason.as_deref().unwrap_or_default();
        let text = shortened(failed.message.as_deref().unwrap_or_default(), 200);
        let limit = job.spec.as_ref().and_then(|spec| spec.backoff_limit).unwrap_or(6);
        let what = match reason {
            "BackoffLimitExceeded" => {
                format!("the Job has given up: its pods failed more often than backoffLimit {limit}")
            }
            _ => format!("the Job has failed ({reason}): {text}"),
        };
        let next = format!("kubectl -n {namespace} logs job/{name}");
        let at = failed.last_transition_time.as_ref().map(|time| time.0);
        return vec![Cause::new(Case::JobBackoff, object, what).since(at).next(next).evidence([kept])];
    }
    if job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true) {
        let next = format!(
            "kubectl -n {namespace} patch job {name} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'"
        );
        return vec![Cause::new(Case::Paused, object, "the Job is suspended").next(next)];
    }
    Vec::new()
}

/// Returns the pods of each cause, and the cause, the most frequent first. Two causes are the same if they differ in the name
/// of the pod only. Pods without a cause are left out.
#[must_use]
pub fn summary(pods: Vec<(Pod, Vec<Cause>)>) -> Vec<(Vec<Pod>, Cause)> {
    let mut groups: BTreeMap<(Case, String), (Vec<Pod>, Cause)> = BTreeMap::new();
    for (pod, causes) in pods {
        let Some(first) = causes.into_iter().next() else { continue };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let key = (first.case, first.what.replace(name, ""));
        let (pods, oldest) = groups.entry(key).or_insert_with(|| (Vec::new(), first.clone()));
        // The oldest says since when, and is named.
        if older(first.since, oldest.since) {
            *oldest = first;
            pods.insert(0, pod);
        } else {
            pods.push(pod);
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|(pods, _)| std::cmp::Reverse(pods.len()));
    groups
}

fn older(one: Option<Timestamp>, other: Option<Timestamp>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one < other)
}

/// Old pods that were created before their namespace or template opted in lack the gate, which cannot be added later.
fn without_gate(sets: &[ReplicaSet], template: Option<&BTreeMap<String, String>>) -> Option<String> {
    let opts_in = template?.get(CONTROL_LABEL).is_some_and(|value| value == CONTROL_VALUE);
    let is_old = |set: &&ReplicaSet| {
        let spec = set.spec.as_ref();
        let labels = spec.and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.as_ref());
        let running = set.status.as_ref().map_or(0, |status| status.replicas);
        running > 0
            && labels.and_then(|labels| labels.get(CONTROL_LABEL)).is_none_or(|it| it != CONTROL_VALUE)
    };
    let number = sets.iter().filter(is_old).count();
    (opts_in && number > 0).then(|| {
        format!(
            "{} of pods without {CONTROL_LABEL}: these pods have no gate {SERVICE_READY_GATE}, and are replaced undrained",
            count(number, "old ReplicaSet")
        )
    })
}

/// Returns a number of pods from a number or a percentage of `of` pods, which is rounded up or down.
pub(crate) fn amount(value: &IntOrString, of: i32, up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent = text.trim_end_matches('%').parse::<i32>().unwrap_or(0);
            let hundredths = i64::from(percent) * i64::from(of) + if up { 99 } else { 0 };
            i32::try_from(hundredths / 100).unwrap_or(i32::MAX)
        }
    }
}
