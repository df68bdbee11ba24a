//! Valid objects. They have everything that Podward reads, so that mutations reach it.

use podward_core::hooks::{consumer_key_of, hook_finalizer};
use podward_core::keys::{self, Stage, permission_key};
use serde_json::{Map, Value, json};

/// 2026-01-01T10:00:00Z, in nanoseconds since the Unix epoch.
pub(super) const NOW: i64 = 1_767_261_600_000_000_000;
/// The hooks of the cluster.
pub(super) const HOOKS: [&str; 2] = ["balancer", "registry"];

/// The annotations and labels of operations and deletions, with the values that Podward and its clients write.
fn annotations() -> Value {
    let expected = json!({"expectedFinalizers": {
        (consumer_key_of("balancer")): hook_finalizer("balancer"),
        "Service/shop/web": "prot.podopslifecycle.kusionstack.io/1234",
    }});
    let request = json!({
        "kind": "Evict", "requestedBy": "jane", "requestedAt": NOW, "gracePeriodSeconds": 5, "byWorkload": false,
        "requesterGroups": ["team-a"],
        "reservedAt": NOW, "costBefore": "7", "notBefore": NOW, "timesPostponed": 1,
    });
    let asked = json!({
        "balancer": {"phase": "PREPARE", "since": NOW}, "registry": {"phase": "HELD", "since": NOW},
    });
    let evidence = json!({"registry": {"level": "PROVEN", "detail": "read back"}});
    let refused = json!({"a": {"hook/balancer": {"reason": "errors", "since": NOW}}});
    json!({
        keys::AVAILABLE_CONDITIONS: expected.to_string(),
        keys::DELETION_REQUEST: request.to_string(),
        keys::DELETE_TIMESTAMP: NOW.to_string(),
        keys::HOOK_REQUESTS: asked.to_string(),
        keys::EVIDENCE: evidence.to_string(),
        keys::RESULT_REFUSED: refused.to_string(),
        keys::BUSY_UNTIL: "2026-01-01T11:00:00Z",
        keys::BUSY_REASON: "a build",
        keys::BUSY_LIMITS: json!({"a": "2026-01-01T11:00:00Z"}).to_string(),
        keys::IDLE_DELETION_COST: "3",
        keys::POD_DELETION_COST: "2147483647",
        keys::SKIP_RULES: json!({"skipRules": ["half"]}).to_string(),
        (format!("{}rule", keys::RULE_DETAIL_PREFIX)): json!({"stage": "PreCheck", "passed": false}).to_string(),
    })
}

/// Returns an opted-in pod with further labels and annotations.
pub(super) fn pod(labels: &[(String, &str)], annotations: &Value) -> Value {
    let mut all =
        Map::from_iter([(keys::CONTROL_LABEL.to_owned(), json!("true")), ("app".to_owned(), json!("web"))]);
    all.extend(labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    let condition = |kind: &str, status: &str| {
        let since = "2026-01-01T09:00:00Z";
        json!({"type": kind, "status": status, "lastTransitionTime": since, "reason": "R", "message": "waits"})
    };
    json!({
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "5b1c1f6e-0000-4000-8000-000000000001",
            "resourceVersion": "42", "labels": all, "annotations": annotations,
            "creationTimestamp": "2026-01-01T08:00:00Z",
            "finalizers": [hook_finalizer("balancer"), "prot.podopslifecycle.kusionstack.io/1234"],
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "2", "controller": true,
            }],
        },
        "spec": {
            "nodeName": "n1", "readinessGates": [{"conditionType": keys::SERVICE_READY_GATE}],
            "containers": [{"name": "web", "ports": [{"name": "http", "containerPort": 8080}]}],
        },
        "status": {
            "phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [
                condition("Ready", "True"), condition("ContainersReady", "True"),
                condition(keys::SERVICE_READY_GATE, "True"), condition(keys::LIFECYCLE_CONDITION, "False"),
            ],
        },
    })
}

/// The labels of an operation `id` in these stages.
fn operation(id: &str, stages: &[Stage]) -> Vec<(String, &'static str)> {
    let mut labels: Vec<_> = stages.iter().map(|stage| (stage.key(id), "1767261600000000000")).collect();
    labels.push((Stage::OperationType.key(id), "update"));
    labels
}

/// Returns pods in several states of an operation and of a deletion.
pub(super) fn pods() -> Vec<Value> {
    let states: [&[Stage]; 6] = [
        &[Stage::Operating],
        &[Stage::Operating, Stage::PreCheck],
        &[Stage::Operating, Stage::PreChecked, Stage::Preparing],
        &[Stage::Operating, Stage::PreChecked, Stage::Operate],
        &[Stage::Operated, Stage::DoneOperationType, Stage::PostCheck],
        &[Stage::Operating, Stage::UndoOperationType],
    ];
    let mut pods =
        vec![pod(&[], &json!({})), pod(&[(keys::SERVICE_AVAILABLE.to_owned(), "1")], &annotations())];
    for state in states {
        let mut labels = operation("a", state);
        labels.push((permission_key("update"), "1"));
        pods.push(pod(&labels, &annotations()));
    }
    let mut deleted = operation(keys::DELETE_OPERATION, &[Stage::Operating, Stage::PreCheck]);
    let marks = [keys::TO_DELETE, keys::PREPARING_TO_DELETE, keys::STAY_OFFLINE];
    deleted.extend(marks.map(|key| (key.to_owned(), "1767261600000000000")));
    pods.push(pod(&deleted, &annotations()));
    let mut terminating = pod(&deleted, &annotations());
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:30Z");
    terminating["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pods.push(terminating);
    pods
}

/// Returns a LifecycleHook with all fields.
pub(super) fn hook(name: &str) -> Value {
    json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "LifecycleHook", "metadata": {"name": name},
        "spec": {
            "podSelector": {"matchLabels": {"app": "web"}},
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["x"]}]},
            "phases": ["PreCheck", "Prepare", "PostCheck", "Complete", "Release"],
            "operationTypes": ["update", "delete"],
            "endpoint": {"url": "https://balancer.example:9443", "serverName": "balancer.example"},
            "deadlineSeconds": 60, "deadlinePolicy": "Proceed", "failurePolicy": "Fail",
            "postCheckRejection": "Rollback", "order": 1, "prepareTiming": "BeforeGate",
            "completeTiming": "AfterGate", "maxConcurrentCalls": 7, "callTimeoutMilliseconds": 1000,
        },
        "status": {"callsInFlight": 1, "lastError": "late", "lastAnswerTime": "2026-01-01T10:00:00.000000Z"},
    })
}

/// Returns a PodTransitionRule with a rule of each kind.
pub(super) fn rule() -> Value {
    let poll = json!({
        "url": "https://checks.example/poll?kind=a", "rawQueryKey": "trace", "intervalSeconds": 3,
        "timeoutSeconds": 60,
    });
    let field =
        |path: &str| json!({"key": "k", "valueFrom": {"type": "pod", "fieldRef": {"fieldPath": path}}});
    let power = json!({"expFunc": {"coeff": "0.5", "pow": "0.8"}});
    json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": "sample", "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "rules": [
                {"name": "half", "availablePolicy": {"maxUnavailableValue": "50%", "minAvailableValue": 1}},
                {"name": "power", "availablePolicy": {"maxUnavailableValue": 3, "maxUnavailablePolicy": power}},
                {
                    "name": "ready", "stage": "PreCheck", "disabled": false,
                    "filter": {"labelSelector": {
                        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["web"]}],
                    }},
                    "labelCheck": {"requires": {"matchLabels": {"app.custom/ready": "true"}}},
                },
                {
                    "name": "outside", "stage": "PostCheck",
                    "webhook": {
                        "clientConfig": {"url": "https://checks.example/first", "caBundle": "Cg==", "poll": poll},
                        "failurePolicy": "Fail",
                        "parameters": [
                            field("status.podIP"), field("metadata.annotations['test.io/context']"),
                            {"key": "literal", "value": "x"},
                        ],
                    },
                },
            ],
        },
        "status": {
            "observedGeneration": 3, "targets": ["web-0"],
            "ruleStates": [{"name": "outside", "webhookStatus": {
                "taskStates": [{"taskId": "t", "processing": ["web-0"], "approved": []}], "history": [{"taskId": "s"}],
            }}],
            "details": [{"name": "web-0", "stage": "PostCheck", "passed": false, "passedRules": ["half"]}],
        },
    })
}

/// Returns a CloneSet with all fields.
pub(super) fn clone_set() -> Value {
    let hook = |marker: &str| {
        json!({
            "labelsHandler": {(format!("example.com/{marker}")): "true"},
            "finalizersHandler": [format!("example.com/{marker}-hook")], "markPodNotReady": true,
        })
    };
    let condition = |kind: &str, status: &str| {
        let since = "2026-01-01T09:00:00Z";
        json!({"type": kind, "status": status, "reason": "R", "message": "m", "lastTransitionTime": since,
              "lastUpdateTime": since})
    };
    let selector = json!({"matchLabels": {"app": "web"}});
    json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet",
        "metadata": {"name": "web", "namespace": "shop", "generation": 4},
        "spec": {
            "replicas": 3, "selector": selector,
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"version": "2"}},
                "spec": {"restartPolicy": "Always", "containers": [{
                    "name": "web", "image": "registry.example/web:2",
                    "env": [{"name": "KRUISE_CONTAINER_PRIORITY", "value": "1"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }]},
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }],
            "scaleStrategy": {"podsToDelete": ["web-abcde"], "maxUnavailable": "50%", "disablePVCReuse": true},
            "updateStrategy": {
                "type": "InPlaceIfPossible", "partition": "50%", "maxUnavailable": 1, "maxSurge": "20%", "paused": true,
                "priorityStrategy": {
                    "weightPriority": [{"weight": 50, "matchSelector": selector}], "orderPriority": [],
                },
                "scatterStrategy": [{"key": "zone", "value": "a"}],
                "inPlaceUpdateStrategy": {"gracePeriodSeconds": 5},
            },
            "revisionHistoryLimit": 5, "minReadySeconds": 10, "progressDeadlineSeconds": 600,
            "lifecycle": {
                "preNormal": hook("online"), "inPlaceUpdate": hook("online"), "preDelete": hook("delete"),
            },
        },
        "status": {
            "observedGeneration": 3, "replicas": 3, "readyReplicas": 3, "availableReplicas": 2, "updatedReplicas": 1,
            "updatedReadyReplicas": 1, "updatedAvailableReplicas": 1, "expectedUpdatedReplicas": 1,
            "updateRevision": "web-59c8d7b6f4", "currentRevision": "web-7d4c5f9b88", "collisionCount": 0,
            "labelSelector": "app=web",
            "conditions": [condition("FailedScale", "False"), condition("Progressing", "True")],
        },
    })
}
