//! Checks the LifecycleHooks: what they select waits for them.

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Api, ResourceExt};
use podward_api::LifecycleHook;
use podward_diagnosis::age;

use super::finding::Finding;
use super::target::DoctorTarget;

/// The time after which a hook that is not reachable has failed, in seconds: connections are made again meanwhile.
const PATIENCE: i64 = 30;

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let api: Api<DeserializeGuard<LifecycleHook>> = Api::all(target.client.clone());
    let found = match api.list(&ListParams::default()).await {
        Ok(found) => found.items,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return Ok(vec![Finding::skipped("the cluster does not serve LifecycleHooks")]);
        }
        Err(error) => return Err(error).context("list the LifecycleHooks"),
    };
    Ok(findings(found, Timestamp::now()))
}

fn findings(hooks: Vec<DeserializeGuard<LifecycleHook>>, now: Timestamp) -> Vec<Finding> {
    let number = hooks.len();
    let mut findings: Vec<Finding> = hooks.into_iter().flat_map(|hook| of_hook(hook, now)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    match (number, findings.is_empty()) {
        (0, _) => vec![Finding::ok("there are no LifecycleHooks")],
        (_, true) => vec![Finding::ok(format!("{number} LifecycleHooks are accepted and reachable"))],
        (_, false) => findings,
    }
}

fn of_hook(hook: DeserializeGuard<LifecycleHook>, now: Timestamp) -> Option<Finding> {
    let hook = match hook.0 {
        Ok(hook) => hook,
        Err(error) => {
            let name = error.metadata.name.as_deref().unwrap_or_default();
            return Some(Finding::failed(
                format!("LifecycleHook {name} cannot be read: {}", error.error),
                "correct it, or use the doctor of the installed version",
            ));
        }
    };
    let name = hook.name_any();
    let look = format!("kubectl describe lifecyclehook {name}");
    let status = hook.status.unwrap_or_default();
    let is = |kind: &str, state: &str| {
        status.conditions.iter().find(|condition| condition.type_ == kind && condition.status == state)
    };
    let said = |condition: &Condition| {
        let since = age(condition.last_transition_time.0, now);
        match condition.message.as_str() {
            "" => format!(" since {since}"),
            message => format!(" since {since} ({message})"),
        }
    };
    if let Some(refused) = is("Accepted", "False") {
        let what =
            format!("LifecycleHook {name} is not accepted{}: pods that it selects wait", said(refused));
        return Some(Finding::failed(what, format!("kubectl edit lifecyclehook {name}")));
    }
    if let Some(silent) = is("Reachable", "False") {
        let what =
            format!("LifecycleHook {name} is not reachable{}: pods that it selects wait", said(silent));
        let next = format!("{look}; kubectl podward runbook PodwardHookUnreachable");
        let is_new = now.duration_since(silent.last_transition_time.0).as_secs() < PATIENCE;
        return Some(if is_new { Finding::warning(what, next) } else { Finding::failed(what, next) });
    }
    if status.conditions.is_empty() {
        let what = format!("no lifecycle-controller has looked at LifecycleHook {name}");
        return Some(Finding::warning(what, "check the lifecycle-controller, and its log"));
    }
    let matches_none = is("Accepted", "True").is_some_and(|condition| condition.reason == "MatchesNoPod");
    matches_none.then(|| Finding::note(format!("LifecycleHook {name} selects no pod now")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    fn found(hooks: Value) -> Vec<Finding> {
        let hooks = hooks.as_array().unwrap().iter().map(|hook| {
            let (spec, conditions) = (&hook[0], &hook[1]);
            let object = json!({
                "apiVersion": "podward.io/v1alpha1", "kind": "LifecycleHook", "metadata": {"name": "balancer"},
                "spec": spec, "status": {"conditions": conditions},
            });
            serde_json::from_value(object).unwrap()
        });
        findings(hooks.collect(), "2026-01-01T10:02:00Z".parse().unwrap())
    }

    fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T10:00:00Z",
        })
    }

    fn hook() -> Value {
        json!({"phases": ["Prepare"], "attachment": {}})
    }

    #[test]
    fn hooks_that_pods_wait_for_are_found() {
        let valid = condition("Accepted", "True", "Valid", "");
        let silent = condition("Reachable", "False", "NotReached", "connection refused");
        let refused = condition("Accepted", "False", "Invalid", "phases is empty");
        for (conditions, level, what) in [
            (
                json!([valid, silent]),
                FindingLevel::Failed,
                "LifecycleHook balancer is not reachable since 2 min (connection refused): pods that it selects wait",
            ),
            (
                json!([refused, silent]),
                FindingLevel::Failed,
                "LifecycleHook balancer is not accepted since 2 min (phases is empty): pods that it selects wait",
            ),
            (
                json!([]),
                FindingLevel::Warning,
                "no lifecycle-controller has looked at LifecycleHook balancer",
            ),
            (
                json!([condition("Accepted", "True", "MatchesNoPod", "none")]),
                FindingLevel::Note,
                "LifecycleHook balancer selects no pod now",
            ),
            (
                json!([valid, condition("Reachable", "True", "Reached", "")]),
                FindingLevel::Ok,
                "1 LifecycleHooks are accepted and reachable",
            ),
        ] {
            let found = found(json!([[hook(), conditions]]));
            assert_eq!((found[0].level, found[0].what.as_str()), (level, what));
        }
    }

    #[test]
    fn a_hook_that_has_just_been_lost_is_a_warning() {
        let mut silent = condition("Reachable", "False", "NotReached", "connection refused");
        silent["lastTransitionTime"] = json!("2026-01-01T10:01:40Z");
        let found = found(json!([[hook(), [silent]]]));
        assert_eq!(found[0].level, FindingLevel::Warning, "{found:?}");
    }

    #[test]
    fn a_hook_that_cannot_be_read_is_found() {
        let found = found(json!([[{"phases": 5}, []]]));
        assert!(found[0].what.starts_with("LifecycleHook balancer cannot be read: "), "{found:?}");
        assert_eq!(findings(Vec::new(), Timestamp::now())[0].what, "there are no LifecycleHooks");
    }
}
