//! Claims of pods that exist, end and are gone.

use serde_json::{Value, json};

use super::*;
use crate::template::test_pods::set;

fn claim(name: &str, id: &str, owner: &str) -> PersistentVolumeClaim {
    let reference =
        json!({"apiVersion": "x/v1", "kind": "CloneSet", "name": "web", "uid": owner, "controller": true});
    serde_json::from_value(json!({"metadata": {
        "name": name, "uid": "c", "resourceVersion": "3", "labels": {INSTANCE_ID: id}, "ownerReferences": [reference],
    }}))
    .unwrap()
}

fn pod(id: &str) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": format!("web-{id}"), "uid": "p", "labels": {INSTANCE_ID: id}}}),
    )
    .unwrap()
}

fn names(claims: &[&PersistentVolumeClaim]) -> Vec<String> {
    claims.iter().map(|it| it.name_any()).collect()
}

#[test]
fn claims_belong_to_the_set_and_to_a_pod() {
    let template = json!({
        "metadata": {"name": "data", "labels": {"tier": "1", "app": "x"}, "annotations": {"a": "b"}},
        "spec": {"newField": 1}, "status": {"phase": "Pending"},
    });
    let claims =
        new_claims(&set(), &[("app".to_owned(), "web".to_owned())].into(), &[template], "abcde").unwrap();
    let expected = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-web-abcde", "namespace": "test", "annotations": {"a": "b"},
            "labels": {"tier": "1", "app": "web", INSTANCE_ID: "abcde"}, "ownerReferences": [set().reference()],
        },
        "spec": {"newField": 1},
    });
    assert_eq!(claims, [("data".to_owned(), expected)].into());
    for template in [
        json!({}),
        json!({"metadata": {"name": ""}}),
        json!(1),
        json!({"metadata": {"name": "a", "labels": 1}}),
    ] {
        new_claims(&set(), &BTreeMap::new(), &[template], "abcde").unwrap_err();
    }
}

#[test]
fn an_identity_is_kept_when_its_pod_is_gone_or_ends() {
    let mut going = claim("data-web-ccccc", "ccccc", "set-uid");
    going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap());
    let claims = [
        claim("data-web-aaaaa", "aaaaa", "set-uid"),
        claim("data-web-bbbbb", "bbbbb", "set-uid"),
        claim("data-web-fffff", "fffff", "set-uid"),
        going,
        claim("log-web-ccccc", "ccccc", "set-uid"),
        claim("data-web-ddddd", "ddddd", "other"),
        claim("data-web-E_", "E_", "set-uid"),
        claim("data-web-", "", "set-uid"),
    ];
    let (active, ending) = ([pod("aaaaa")], [pod("ccccc"), pod("fffff"), pod("ggggg")]);
    let kept = kept_ids(&set(), &active, &ending, &claims);
    assert_eq!(kept, KeptIds { free: ["bbbbb".to_owned()].into(), occupied: vec![&ending[1]] });
}

#[test]
fn unused_claims_go_with_their_pods() {
    let claims =
        [claim("a", "aaaaa", "set-uid"), claim("b", "bbbbb", "set-uid"), claim("c", "ccccc", "set-uid")];
    let (active, ending) = ([pod("aaaaa")], [pod("bbbbb")]);
    let unused = unused_claims(&set(), &active, &ending, &claims);
    assert_eq!(names(&unused.delete), ["c"]);
    let [(handed, to)] = unused.hand_over.as_slice() else { panic!("{unused:?}") };
    assert_eq!((handed.name_any(), to.name_any()), ("b".to_owned(), "web-bbbbb".to_owned()));
    let patch = hand_over(&set(), handed, to).unwrap();
    let reference = json!({
        "apiVersion": "v1", "kind": "Pod", "name": "web-bbbbb", "uid": "p",
        "controller": true, "blockOwnerDeletion": true,
    });
    let expected: Value =
        json!({"metadata": {"uid": "c", "resourceVersion": "3", "ownerReferences": [reference]}});
    assert_eq!(patch, expected);
    assert_eq!(hand_over(&set(), handed, &Pod::default()), None);
}
