//! First lines for workloads.
#![allow(clippy::unwrap_used)] // helpers of tests

use k8s_openapi::api::core::v1::Pod;
use podward_diagnosis::rollout::{of_deployment, of_job, of_stateful_set, summary};
use podward_diagnosis::{Case, Cause};
use serde_json::{Value, json};

fn deployment(spec: Value, status: Value) -> Vec<Cause> {
    let mut whole =
        json!({"replicas": 4, "selector": {}, "template": {"metadata": {"labels": {"app": "web"}}}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": whole, "status": status});
    of_deployment(&serde_json::from_value(object).unwrap(), &[])
}

#[test]
fn a_finished_rollout_has_no_cause() {
    let done = json!({"replicas": 4, "updatedReplicas": 4, "availableReplicas": 4});
    assert_eq!(deployment(json!({}), done), []);
}

#[test]
fn a_rollout_without_surge_waits_for_an_available_pod() {
    let strategy = json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}}});
    let causes = deployment(strategy, json!({"replicas": 4, "updatedReplicas": 1, "availableReplicas": 3}));
    assert_eq!(causes[0].case, Case::NoSurge);
    assert!(
        causes[0].what.contains("maxSurge 0) and waits for one to be available (1 of 4 pods updated"),
        "{causes:?}"
    );
}

#[test]
fn a_rollout_says_how_long_ready_pods_are_not_available() {
    let spec = json!({
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}}, "minReadySeconds": 90,
    });
    let status = |available: i32| json!({"replicas": 4, "updatedReplicas": 2, "readyReplicas": 4, "availableReplicas": available});
    let causes = deployment(spec.clone(), status(2));
    assert_eq!(causes[0].case, Case::NoSurge);
    assert!(
        causes[0].what.contains("to be available, 90 s (minReadySeconds) after it is Ready (2 of 4"),
        "{causes:?}"
    );
    // It may go on.
    assert_eq!(deployment(spec, status(3))[0].case, Case::Rollout);
}

#[test]
fn a_rollout_without_room_in_a_quota_says_why_it_needs_some() {
    let failure = json!({
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "message": "pods \"web-1\" is forbidden: exceeded quota: full, requested: pods=1, used: pods=4, limited: pods=4",
    });
    let status =
        json!({"replicas": 4, "updatedReplicas": 0, "availableReplicas": 4, "conditions": [failure]});
    let strategy = json!({"strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}});
    let causes = deployment(strategy, status);
    assert_eq!(causes[0].case, Case::Quota);
    let words = "the rollout has to add a pod before it removes one (maxSurge 1, maxUnavailable 0): 0 of 4 pods updated, 4 \
                 available, 4 in all";
    assert_eq!(causes[0].evidence[1], words);
}

#[test]
fn a_deadline_and_a_refused_pod_are_told() {
    let progressing = json!({
        "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "lastTransitionTime": "2026-01-01T10:00:00Z",
    });
    let failure = json!({
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "message": "pods \"web-1\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3",
    });
    let status = json!({"replicas": 3, "updatedReplicas": 0, "availableReplicas": 3, "conditions": [progressing, failure]});
    let causes = deployment(json!({"progressDeadlineSeconds": 30}), status);
    assert_eq!(causes.iter().map(|cause| cause.case).collect::<Vec<_>>(), [Case::Quota, Case::Rollout]);
    assert!(
        causes[1].what.starts_with("the rollout has made no progress for 30 s (0 of 4 pods updated"),
        "{causes:?}"
    );
}

#[test]
fn old_pods_without_the_gate_are_evidence() {
    let label = json!({"kusionstack.io/control": "true"});
    let object = json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"replicas": 2, "selector": {}, "template": {"metadata": {"labels": label}}},
        "status": {"replicas": 2, "updatedReplicas": 1, "availableReplicas": 1},
    });
    let old = json!([{"spec": {"selector": {}, "template": {"metadata": {}}}, "status": {"replicas": 1}}]);
    let causes = of_deployment(
        &serde_json::from_value(object).unwrap(),
        &serde_json::from_value::<Vec<_>>(old).unwrap(),
    );
    assert!(
        causes[0].evidence[0].starts_with("1 old ReplicaSet of pods without kusionstack.io/control"),
        "{causes:?}"
    );
}

#[test]
fn stateful_sets_and_jobs_say_what_they_wait_for() {
    let set = json!({
        "metadata": {"namespace": "shop", "name": "db"},
        "spec": {"replicas": 3, "selector": {}, "serviceName": "db", "template": {}},
        "status": {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"},
    });
    let causes = of_stateful_set(&serde_json::from_value(set).unwrap());
    assert!(
        causes[0].what.starts_with("the rollout waits for its pods (1 of 3 pods updated, 2 Ready"),
        "{causes:?}"
    );
    let job = |spec: Value, conditions: Value| {
        let object = json!({
            "metadata": {"namespace": "shop", "name": "report"}, "spec": spec, "status": {"conditions": conditions},
        });
        of_job(&serde_json::from_value(object).unwrap())
    };
    assert_eq!(job(json!({"suspend": true, "template": {}}), json!([]))[0].case, Case::Paused);
    let failed =
        json!([{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}]);
    let causes = job(json!({"template": {}, "ttlSecondsAfterFinished": 60}), failed);
    assert_eq!(causes[0].what, "the Job has failed (DeadlineExceeded): too long");
    assert!(causes[0].evidence[0].starts_with("ttlSecondsAfterFinished: 60"), "{causes:?}");
    assert_eq!(job(json!({"template": {}}), json!([])), []);
}

/// A StatefulSet of 3 pods that are Ready, and of which `updated` have the present revision.
fn stateful_set(strategy: &Value, updated: i32) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "db"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "db"}}, "serviceName": "db", "template": {},
            "updateStrategy": strategy,
        },
        "status": {
            "replicas": 3, "readyReplicas": 3, "updatedReplicas": updated, "currentRevision": "db-a",
            "updateRevision": "db-b",
        },
    })
}

fn lines_of_stateful_set(set: Value) -> Vec<String> {
    let causes = of_stateful_set(&serde_json::from_value(set).unwrap());
    causes.into_iter().map(|cause| format!("{}; next: {}", cause.what, cause.next)).collect()
}

#[test]
fn a_stateful_set_with_a_partition_is_complete_without_the_pods_below_it() {
    let told = |partition: i32, updated: i32| {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        lines_of_stateful_set(stateful_set(&strategy, updated))
    };
    for (partition, updated) in [(2, 1), (1, 2), (3, 0), (5, 0), (0, 3)] {
        assert_eq!(told(partition, updated), [""; 0], "{partition} {updated}");
    }
    assert!(told(1, 1)[0].starts_with("the rollout waits for its pods (1 of 2 pods updated, 3 Ready"));
    assert!(told(0, 2)[0].starts_with("the rollout waits for its pods (2 of 3 pods updated, 3 Ready"));
    // Without a rollout, the pods below the partition count too.
    let mut starting = stateful_set(&json!({"rollingUpdate": {"partition": 1}}), 3);
    starting["status"]["readyReplicas"] = json!(2);
    assert!(lines_of_stateful_set(starting)[0].contains("(3 of 3 pods updated, 2 Ready, 3 in all)"));
    // A rollback makes the revision current again before its pods have it.
    let mut back = stateful_set(&json!({"type": "RollingUpdate"}), 2);
    back["status"]["updateRevision"] = json!("db-a");
    assert!(
        lines_of_stateful_set(back)[0].starts_with("the rollout waits for its pods (2 of 3 pods updated")
    );
}

#[test]
fn a_stateful_set_says_in_which_order_its_pods_are_updated_and_created() {
    let told = |spec: Value, status: Value| {
        let mut set = stateful_set(&json!({}), 3);
        set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        set["status"].as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
        of_stateful_set(&serde_json::from_value(set).unwrap())[0].what.rsplit_once(')').unwrap().1.to_owned()
    };
    let most = |value: Value| json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": value}}});
    let parallel = json!({"podManagementPolicy": "Parallel"});
    let old = json!({"updatedReplicas": 1});
    let missing = json!({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 0, "currentRevision": "db-b"});
    let down = ", from the highest number down, one at a time";
    assert_eq!(told(json!({}), old.clone()), down);
    // The policy is about the creation and deletion of pods, not about updates.
    assert_eq!(told(parallel.clone(), old.clone()), down);
    assert_eq!(told(most(json!(2)), old.clone()), ", from the highest number down, up to 2 at a time");
    assert_eq!(told(most(json!("70%")), old.clone()), ", from the highest number down, up to 2 at a time");
    assert_eq!(told(most(json!("1%")), old), down);
    assert_eq!(told(json!({}), missing.clone()), ", one at a time in the order of their numbers");
    assert_eq!(told(parallel, missing), "");
    let replaced = json!({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2});
    assert_eq!(told(json!({}), replaced), "", "the last old pod is being replaced");
    assert_eq!(told(json!({}), json!({"readyReplicas": 2})), "", "one pod is not Ready, and all exist");
}

#[test]
fn a_stateful_set_with_on_delete_waits_for_people() {
    let strategy = json!({"type": "OnDelete"});
    assert_eq!(lines_of_stateful_set(stateful_set(&strategy, 3)), [""; 0]);
    let old = "2 of 3 pods have an old template, and stay until they are deleted (updateStrategy OnDelete); next: kubectl -n \
               shop get pods -l 'app=db,controller-revision-hash!=db-b'; delete these pods";
    assert_eq!(lines_of_stateful_set(stateful_set(&strategy, 1)), [old]);
    let mut starting = stateful_set(&strategy, 1);
    starting["status"]["readyReplicas"] = json!(2);
    let waits = "the StatefulSet waits for its pods (2 of 3 Ready, 3 in all); next: kubectl -n shop describe statefulset db";
    assert_eq!(lines_of_stateful_set(starting), [waits, old]);
}

#[test]
fn pods_with_the_same_cause_are_one_group_under_the_oldest() {
    let pod = |name: &str| -> Pod { serde_json::from_value(json!({"metadata": {"name": name}})).unwrap() };
    let cause = |what: &str, since: &str| Cause {
        case: Case::Crash,
        object: String::new(),
        what: what.to_owned(),
        since: Some(since.parse().unwrap()),
        next: String::new(),
        evidence: Vec::new(),
    };
    let groups = summary(vec![
        (pod("web-a"), vec![cause("pod web-a crashes", "2026-01-01T10:00:00Z")]),
        (pod("web-b"), vec![cause("pod web-b crashes", "2026-01-01T09:00:00Z")]),
        (pod("c"), vec![cause("another", "2026-01-01T09:00:00Z")]),
        (pod("d"), Vec::new()),
    ]);
    assert_eq!(groups.iter().map(|(pods, _)| pods.len()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(groups[0].0[0].metadata.name.as_deref(), Some("web-b"));
    assert_eq!(groups[0].1.what, "pod web-b crashes");
}
