//! Manifests of OpenKruise are read and written unchanged, and invalid ones are rejected with the field.
#![allow(missing_docs, clippy::unwrap_used)]

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use podward_api::clone_set::{
    CloneSetCondition, HookDeadlinePolicy, HookOption, NO_PROGRESS_DEADLINE, UpdateStrategy, UpdateType,
};
use podward_api::{CloneSet, clone_set_crd, crds};
use serde_json::{Value, json};

/// Labels hold the pods before they are updated and deleted.
const BLOCKERS: &str = r#"
apiVersion: apps.kruise.io/v1alpha1
kind: CloneSet
metadata: {name: shop, namespace: default, labels: {apps.kruise.io/cloneset-scaling-exclude-preparing-delete: "true"}}
spec:
  replicas: 2
  revisionHistoryLimit: 10
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop, unready-blocker-inplace: "true", unready-blocker-delete: "true"}}
    spec:
      containers: [{name: main, image: "registry.example/shop:1", resizePolicyOfTheFuture: x}]
  updateStrategy:
    {type: InPlaceIfPossible, partition: 50%, maxUnavailable: 20%, maxSurge: 0,
     inPlaceUpdateStrategy: {gracePeriodSeconds: 5}}
  lifecycle:
    inPlaceUpdate: {labelsHandler: {unready-blocker-inplace: "true"}, markPodNotReady: true}
    preDelete: {labelsHandler: {unready-blocker-delete: "true"}, markPodNotReady: true}
status:
  observedGeneration: 3
  replicas: 2
  readyReplicas: 2
  availableReplicas: 1
  updatedReplicas: 1
  updatedReadyReplicas: 1
  updatedAvailableReplicas: 0
  expectedUpdatedReplicas: 1
  updateRevision: shop-59c8d7b6f4
  currentRevision: shop-7d4c5f9b88
  collisionCount: 0
  labelSelector: app=shop
  conditions:
  - {type: FailedScale, status: "False", lastTransitionTime: "2026-01-01T10:00:00Z"}
  - type: Progressing
    status: "True"
    reason: CloneSetUpdated
    message: m
    lastTransitionTime: "2026-01-01T10:00:00Z"
    lastUpdateTime: "2026-01-01T10:00:05Z"
"#;

/// Finalizers confirm the pods, and every field of the strategies is set.
const FINALIZERS: &str = r#"
apiVersion: apps.kruise.io/v1alpha1
kind: CloneSet
metadata: {name: gate, namespace: default}
spec:
  replicas: 2
  revisionHistoryLimit: 3
  minReadySeconds: 10
  progressDeadlineSeconds: 600
  selector: {matchExpressions: [{key: app, operator: In, values: [gate]}]}
  template:
    metadata: {labels: {app: gate}}
    spec: {restartPolicy: Always, containers: [{name: main, image: "registry.example/gate:1"}]}
  volumeClaimTemplates:
  - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
  scaleStrategy: {podsToDelete: [gate-abcde], maxUnavailable: 1, disablePVCReuse: true}
  updateStrategy:
    type: InPlaceOnly
    partition: 1
    maxUnavailable: 1
    maxSurge: 0
    paused: true
    priorityStrategy: {weightPriority: [{weight: 50, matchSelector: {matchLabels: {zone: a}}}]}
    scatterStrategy: [{key: zone, value: a}]
  lifecycle:
    preNormal: {finalizersHandler: [example.com/online]}
    preDelete: {finalizersHandler: [example.com/online]}
    inPlaceUpdate: {finalizersHandler: [example.com/online]}
"#;

fn manifest(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn read(document: &Value) -> CloneSet {
    serde_json::from_value(document.clone()).unwrap()
}

/// Returns a set with the fields that must be set, after a change to its spec.
fn minimal(change: Value) -> CloneSet {
    let mut document = json!({"metadata": {"name": "a"}, "spec": {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main"}]}},
    }});
    json_patch::merge(&mut document["spec"], &change);
    read(&document)
}

#[test]
fn manifests_of_openkruise_are_read_and_written_unchanged() {
    for text in [BLOCKERS, FINALIZERS] {
        let document = manifest(text);
        let set = read(&document);
        let difference = json_patch::diff(&document, &serde_json::to_value(&set).unwrap());
        assert!(difference.0.is_empty(), "{difference}");
        assert_eq!(set.check(), Ok(()));
    }
    let set = read(&manifest(BLOCKERS));
    let hooks = set.spec.lifecycle.unwrap();
    let (update, delete) = (hooks.in_place_update.unwrap(), hooks.pre_delete.unwrap());
    assert_eq!(update.labels_handler["unready-blocker-inplace"], "true");
    assert_eq!(delete.labels_handler["unready-blocker-delete"], "true");
    assert!(update.mark_pod_not_ready && hooks.pre_normal.is_none());
    let status = set.status.unwrap();
    assert_eq!((status.available_replicas, status.update_revision.as_deref()), (1, Some("shop-59c8d7b6f4")));
    assert_eq!(status.conditions[1].type_, CloneSetCondition::PROGRESSING);
    assert_eq!(status.conditions[1].reason, CloneSetCondition::UPDATED);

    let set = read(&manifest(FINALIZERS));
    let hooks = set.spec.lifecycle.as_ref().unwrap();
    assert_eq!(hooks.pre_normal.as_ref().unwrap().finalizers_handler, ["example.com/online"]);
    assert_eq!(set.pod_template().unwrap().spec.unwrap().containers[0].name, "main");
    assert_eq!(set.volume_claims().unwrap()[0].metadata.name.as_deref(), Some("data"));
    assert!(set.spec.scale_strategy.disable_pvc_reuse && set.spec.update_strategy.paused);
}

#[test]
fn missing_fields_and_null_stand_for_the_defaults() {
    let set = minimal(json!({}));
    let spec = &set.spec;
    assert_eq!((spec.replicas, spec.revision_history_limit, spec.min_ready_seconds), (1, 10, 0));
    assert_eq!(spec.update_strategy, UpdateStrategy::default());
    assert_eq!(spec.update_strategy.type_, UpdateType::ReCreate);
    assert_eq!(spec.update_strategy.max_unavailable, IntOrString::String("20%".to_owned()));
    assert_eq!((spec.progress_deadline_seconds, &spec.lifecycle), (None, &None));

    // The names of all fields that have defaults, with `null` for each of them.
    let mut document = serde_json::to_value(&set).unwrap();
    let nulls = |names: &[&str]| -> Value {
        names.iter().map(|name| ((*name).to_owned(), Value::Null)).collect::<serde_json::Map<_, _>>().into()
    };
    let fields = |document: &mut Value, names: &[&str]| {
        document.as_object_mut().unwrap().extend(nulls(names).as_object().unwrap().clone());
    };
    fields(&mut document["metadata"], &["creationTimestamp"]);
    fields(&mut document["spec"], &["replicas", "volumeClaimTemplates", "scaleStrategy", "updateStrategy"]);
    fields(
        &mut document["spec"],
        &["revisionHistoryLimit", "minReadySeconds", "progressDeadlineSeconds", "lifecycle"],
    );
    document["status"] = Value::Null;
    assert_eq!(read(&document), set);

    document["spec"]["scaleStrategy"] = nulls(&["podsToDelete", "maxUnavailable", "disablePVCReuse"]);
    let updates =
        ["type", "partition", "maxUnavailable", "maxSurge", "paused", "priorityStrategy", "scatterStrategy"];
    document["spec"]["updateStrategy"] = nulls(&updates);
    document["spec"]["updateStrategy"]["inPlaceUpdateStrategy"] = Value::Null;
    assert_eq!(read(&document), set);

    document["spec"]["updateStrategy"]["inPlaceUpdateStrategy"] = nulls(&["gracePeriodSeconds"]);
    document["spec"]["updateStrategy"]["priorityStrategy"] = nulls(&["orderPriority", "weightPriority"]);
    let hook = nulls(&["labelsHandler", "finalizersHandler", "markPodNotReady"]);
    document["spec"]["lifecycle"] = json!({"preDelete": hook, "inPlaceUpdate": null, "preNormal": null});
    document["status"] = json!({"replicas": null, "conditions": null, "updateRevision": null});
    let read_back = read(&document);
    assert_eq!(read_back.status, Some(podward_api::clone_set::CloneSetStatus::default()));
    assert_eq!(read_back.spec.lifecycle.unwrap().pre_delete, Some(Default::default()));

    // OpenKruise writes `null` for a time that is not known.
    document["status"] = json!({"conditions": [{"type": "FailedScale", "status": "True", "reason": null,
        "message": null, "lastTransitionTime": null, "lastUpdateTime": null}]});
    let condition = read(&document).status.unwrap().conditions.remove(0);
    assert_eq!(
        (condition.type_.as_str(), condition.last_update_time),
        (CloneSetCondition::FAILED_SCALE, None)
    );
}

#[test]
fn amounts_are_numbers_or_percentages() {
    let set = minimal(
        json!({"updateStrategy": {"partition": "100%", "maxUnavailable": 0, "maxSurge": 1, "type": "OnDelete"},
        "scaleStrategy": {"maxUnavailable": "10%"}, "progressDeadlineSeconds": 2_147_483_647,
        "lifecycle": {"preNormal": {"labelsHandler": {"ready": "yes"}}}}),
    );
    let update = &set.spec.update_strategy;
    assert_eq!(update.partition, IntOrString::String("100%".to_owned()));
    assert_eq!((&update.max_unavailable, &update.max_surge), (&IntOrString::Int(0), &IntOrString::Int(1)));
    assert_eq!(update.type_, UpdateType::OnDelete);
    assert_eq!(set.spec.scale_strategy.max_unavailable, Some(IntOrString::String("10%".to_owned())));
    assert_eq!(set.spec.progress_deadline_seconds, Some(NO_PROGRESS_DEADLINE));
    assert_eq!(set.check(), Ok(()));
}

#[test]
fn numbers_of_pods_are_always_written() {
    let written = serde_json::to_value(podward_api::clone_set::CloneSetStatus::default()).unwrap();
    let zero = json!({"replicas": 0, "readyReplicas": 0, "availableReplicas": 0, "updatedReplicas": 0,
        "updatedReadyReplicas": 0, "updatedAvailableReplicas": 0, "expectedUpdatedReplicas": 0});
    assert_eq!(written, zero, "a patch of the status must be able to set them to 0");
}

#[test]
fn invalid_sets_are_rejected_with_the_field() {
    let claim = |name: Value| json!({"metadata": {"name": name}, "spec": {}});
    let pod = |change: Value| json!({"template": {"spec": change}});
    let weight = |selector: Value| {
        let terms = json!([{"weight": 1, "matchSelector": selector}]);
        json!({"updateStrategy": {"priorityStrategy": {"weightPriority": terms}}})
    };
    for (change, words) in [
        (json!({"selector": {"matchLabels": {"app": "b"}}}), "spec.template.metadata.labels: do not match"),
        (json!({"template": {"metadata": null}}), "spec.template.metadata.labels: do not match"),
        (json!({"selector": {"matchLabels": null}}), "spec.selector: must not be empty"),
        (
            json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Is"}]}}),
            "spec.selector: operator \"Is\"",
        ),
        (json!({"template": {"spec": null}}), "spec.template.spec: is required"),
        (pod(json!({"containers": null})), "spec.template.spec.containers: must have at least one"),
        (pod(json!({"containers": {"name": "main"}})), "spec.template: is not the template of a pod"),
        (
            pod(json!({"restartPolicy": "Never"})),
            "spec.template.spec.restartPolicy: \"Never\" is not supported",
        ),
        (
            pod(json!({"activeDeadlineSeconds": 5})),
            "spec.template.spec.activeDeadlineSeconds: is not supported",
        ),
        (
            json!({"volumeClaimTemplates": [claim("data".into()), {"spec": 1}]}),
            "spec.volumeClaimTemplates[1]: is not a PersistentVolumeClaim",
        ),
        (
            json!({"volumeClaimTemplates": [claim(Value::Null)]}),
            "spec.volumeClaimTemplates[0].metadata.name: is required",
        ),
        (
            json!({"volumeClaimTemplates": [claim("data".into()), claim("data".into())]}),
            "spec.volumeClaimTemplates[1].metadata.name: \"data\" is the name of another",
        ),
        (
            weight(json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": []}]})),
            "spec.updateStrategy.priorityStrategy.weightPriority[0].matchSelector: ",
        ),
    ] {
        let found = minimal(change.clone()).check().map_err(|error| error.to_string());
        assert!(found.as_ref().is_err_and(|found| found.starts_with(words)), "{change}: {found:?}");
    }
    for spec in [json!({}), json!({"selector": {}}), json!({"template": {}})] {
        let document = json!({"metadata": {"name": "a"}, "spec": spec});
        assert!(serde_json::from_value::<CloneSet>(document).is_err(), "{spec}");
    }
}

#[test]
fn the_definition_has_the_names_columns_and_subresources_of_openkruise() {
    let crd = serde_json::to_value(clone_set_crd()).unwrap();
    assert_eq!(crd["metadata"]["name"], "clonesets.apps.kruise.io");
    let (spec, version) = (&crd["spec"], &crd["spec"]["versions"][0]);
    assert_eq!((&spec["scope"], &version["name"]), (&json!("Namespaced"), &json!("v1alpha1")));
    assert_eq!(
        (&spec["names"]["kind"], &spec["names"]["shortNames"]),
        (&json!("CloneSet"), &json!(["clone"]))
    );
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.labelSelector"});
    assert_eq!(version["subresources"], json!({"status": {}, "scale": scale}));
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    let columns: Vec<(&str, &str, i64)> = columns
        .iter()
        .map(|column| {
            let text = |key: &str| column[key].as_str().unwrap();
            (text("name"), text("jsonPath"), column["priority"].as_i64().unwrap_or(0))
        })
        .collect();
    assert_eq!(
        columns,
        [
            ("DESIRED", ".spec.replicas", 0),
            ("UPDATED", ".status.updatedReplicas", 0),
            ("UPDATED_READY", ".status.updatedReadyReplicas", 0),
            ("UPDATED_AVAILABLE", ".status.updatedAvailableReplicas", 0),
            ("READY", ".status.readyReplicas", 0),
            ("TOTAL", ".status.replicas", 0),
            ("AGE", ".metadata.creationTimestamp", 0),
            ("CONTAINERS", ".spec.template.spec.containers[*].name", 1),
            ("IMAGES", ".spec.template.spec.containers[*].image", 1),
            ("SELECTOR", ".status.labelSelector", 1),
        ]
    );
    assert!(crds().iter().all(|crd| crd.spec.group != "apps.kruise.io"), "it is not installed by default");
}

#[test]
fn the_schema_keeps_templates_and_has_the_defaults() {
    let crd = serde_json::to_value(clone_set_crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let part = |path: &str| schema.pointer(path).unwrap_or_else(|| panic!("no {path} in {schema:#}"));
    assert_eq!(part("/required"), &json!(["selector", "template"]));
    for path in ["/properties/template", "/properties/volumeClaimTemplates/items"] {
        assert_eq!(part(path)["type"], "object");
        assert_eq!(part(path)["x-kubernetes-preserve-unknown-fields"], true);
    }
    assert!(part("/properties/volumeClaimTemplates/items").get("properties").is_none());
    // Rules read these.
    for path in ["/metadata", "/spec"] {
        let path = format!("/properties/template/properties{path}");
        assert_eq!(part(&path)["x-kubernetes-preserve-unknown-fields"], true, "{path}");
    }
    assert_eq!(part("/properties/replicas/default"), &json!(1));
    assert_eq!(part("/properties/revisionHistoryLimit/default"), &json!(10));
    let defaults = json!({"type": "ReCreate", "partition": 0, "maxUnavailable": "20%", "maxSurge": 0});
    assert_eq!(part("/properties/updateStrategy/default"), &defaults);
    for (name, default) in defaults.as_object().unwrap() {
        let field = part(&format!("/properties/updateStrategy/properties/{name}"));
        assert_eq!(&field["default"], default, "{name}");
    }
    for path in [
        "/properties/selector/properties/matchLabels/maxProperties",
        "/properties/lifecycle/properties/preDelete/properties/labelsHandler/maxProperties",
        "/properties/lifecycle/properties/preDelete/properties/labelsHandler/additionalProperties/maxLength",
        "/properties/lifecycle/properties/preDelete/properties/finalizersHandler/maxItems",
    ] {
        part(path);
    }
}

fn with_options(options: &str) -> CloneSet {
    let mut set = minimal(json!({}));
    let annotation = ("podward.io/cloneset-hooks".to_owned(), options.to_owned());
    set.metadata.annotations = Some([annotation].into());
    set
}

#[test]
fn options_of_hooks_are_an_annotation() {
    let none = minimal(json!({})).hook_options().unwrap();
    assert_eq!(none.pre_delete, HookOption::default());
    assert_eq!(none.pre_delete.deadline_seconds, 300);
    let text = r#"{"preNormal": {"holdTraffic": true}, "preDelete": {"deadlineSeconds": 60, "deadlinePolicy": "Proceed"}}"#;
    let found = with_options(text).hook_options().unwrap();
    let released = HookOption {
        deadline_seconds: 60,
        deadline_policy: HookDeadlinePolicy::Proceed,
        hold_traffic: false,
    };
    assert_eq!((found.pre_normal.hold_traffic, found.pre_delete), (true, released));
    assert_eq!(found.in_place_update, HookOption::default());
}

#[test]
fn invalid_options_of_hooks_are_rejected() {
    for (text, words) in [
        ("", "\"\" is not valid: "),
        (r#"{"preDelet": {}}"#, "unknown field `preDelet`"),
        (r#"{"preDelete": {"deadlinePolicy": "Cancel"}}"#, "unknown variant `Cancel`"),
        (r#"{"preNormal": {"deadlineSeconds": 0}}"#, "deadlineSeconds must be from 1 to 86400"),
        (r#"{"inPlaceUpdate": {"deadlineSeconds": 86401}}"#, "deadlineSeconds must be from 1 to 86400"),
        (r#"{"preDelete": {"holdTraffic": true}}"#, "set spec.lifecycle.preDelete.markPodNotReady"),
    ] {
        let found = with_options(text).check().unwrap_err().to_string();
        assert!(found.starts_with("metadata.annotations[podward.io/cloneset-hooks]: "), "{found}");
        assert!(found.contains(words), "{text}: {found}");
    }
}
