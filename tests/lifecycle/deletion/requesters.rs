//! Users without the right to delete pods, who try to have Podward delete them.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys;
use podward_e2e::{Fixture, ServiceInstance, Test};
use podward_support::ServiceKind;
use serde_json::{Value, json};

use super::objects::make;

/// A user who may get and patch pods in the namespace of the test. The names of users in Active Directory are like this.
const USER: &str = r"corp\patcher";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node(
            "a_user_who_may_only_patch_pods_deletes_none",
            a_user_who_may_only_patch_pods_deletes_none,
        ),
        Test::node("a_user_forges_no_deletion_request", a_user_forges_no_deletion_request),
        Test::alone(
            "a_user_hides_no_author_while_podward_is_down",
            a_user_hides_no_author_while_podward_is_down,
        ),
    ]
}

async fn allow_to_patch(fixture: &Fixture) -> Result<()> {
    let names = json!({"name": "patcher", "namespace": fixture.namespace()});
    let group = "rbac.authorization.k8s.io";
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}]);
    make(
        fixture,
        json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": names, "rules": rules}),
    )
    .await?;
    let role = json!({"apiGroup": group, "kind": "Role", "name": "patcher"});
    let user = json!([{"apiGroup": group, "kind": "User", "name": USER}]);
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": names, "roleRef": role,
        "subjects": user,
    });
    make(fixture, binding).await
}

/// The label `to-delete` is accepted, because KusionStack's clients write it, but the pod stays.
async fn a_user_who_may_only_patch_pods_deletes_none(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    allow_to_patch(&fixture).await?;
    fixture.in_service(["web"]).await?;
    let label = format!("{}=1", keys::TO_DELETE);
    fixture.kubectl(&["label", "pod", "web", &label, "--as", USER]).await?.succeeded()?;
    let note = fixture.until_event("web", "DeletionCancelled").await?;
    ensure!(note.contains(r"requested by corp\patcher") && note.contains("may not delete pods"), "{note}");
    let is_withdrawn = |pod: &Pod| {
        let left = pod.annotations();
        !left.contains_key(keys::TO_DELETE_BY) && !left.contains_key(keys::DELETION_REQUEST)
    };
    fixture.feed().until("web", "the request is withdrawn", is_withdrawn).await?;
    let after = fixture.until_available("web").await?;
    ensure!(after.metadata.deletion_timestamp.is_none(), "the pod is being deleted");

    // The right is what counts: an administrator's label deletes the pod.
    fixture.kubectl(&["label", "pod", "web", &label]).await?.succeeded()?;
    super::objects::until_gone(&fixture, "web").await
}

async fn a_user_forges_no_deletion_request(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    allow_to_patch(&fixture).await?;
    fixture.in_service(["web"]).await?;
    let request = json!({"kind": "Delete", "requestedBy": "kubernetes-admin", "requestedAt": 1}).to_string();
    let author = json!({"user": "kubernetes-admin", "groups": ["system:masters"]}).to_string();
    for (key, text) in [(keys::DELETION_REQUEST, &request), (keys::TO_DELETE_BY, &author)] {
        let forged = json!({"metadata": {
            "labels": {keys::TO_DELETE: "1"}, "annotations": {key: text},
        }});
        let patch = ["patch", "pod", "web", "--type=merge", "--as", USER, "-p"];
        let answer = fixture.kubectl(&[&patch[..], &[&forged.to_string()]].concat()).await?;
        // The webhook corrects a forged author, and the policy of the API server denies a forged request.
        if key == keys::DELETION_REQUEST {
            let is_denied = answer.code != Some(0) && answer.said.contains("only Podward writes");
            ensure!(is_denied, "{key} was not denied: {answer:?}");
        } else {
            let note = fixture.until_event("web", "DeletionCancelled").await?;
            ensure!(note.contains(r"requested by corp\patcher"), "{note}");
        }
        let pod = fixture.until_available("web").await?;
        ensure!(pod.metadata.deletion_timestamp.is_none(), "the pod is being deleted");
    }
    Ok(())
}

/// The API server itself denies it. Otherwise the label would count when the webhooks and the controller are back.
async fn a_user_hides_no_author_while_podward_is_down(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    allow_to_patch(&fixture).await?;
    fixture.in_service(["web"]).await?;
    make(&fixture, json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "late", "namespace": fixture.namespace(), "labels": {keys::CONTROL_LABEL: "false"}},
        "spec": {"schedulerName": "none", "containers": [{"name": "late", "image": "late"}]},
    }))
    .await?;
    let podward = fixture.podward()?;
    let mut services = podward.webhooks();
    services.extend(podward.services(ServiceKind::LifecycleController));
    try_join_all(services.iter().map(ServiceInstance::stop)).await?;
    // In the order of the policy.
    let author = format!(r#"{{"user":{},"groups":["system:authenticated"]}}"#, json!(USER));
    let admin = r#"{"user":"admin","groups":["system:masters","system:authenticated"]}"#;
    let patch = async |pod: &str, labels: Value, annotations: Value| {
        let patch = json!({"metadata": {"labels": labels, "annotations": annotations}}).to_string();
        fixture.kubectl(&["patch", "pod", pod, "--type=merge", "--as", USER, "-p", &patch]).await
    };
    let attempts = async {
        let label = json!({keys::TO_DELETE: "1"});
        let without = patch("web", label.clone(), json!({})).await?;
        let with = patch("web", label.clone(), json!({keys::TO_DELETE_BY: author})).await?;
        let hidden = patch("web", json!({}), json!({keys::TO_DELETE_BY: null})).await?;
        // The marks of a pod that has not opted in name the user who opts it in.
        patch("late", label, json!({keys::TO_DELETE_BY: admin})).await?.succeeded()?;
        let opt_in = format!("{}=true", keys::CONTROL_LABEL);
        let as_admin = ["--as", "admin", "--as-group", "system:masters"];
        let label = ["label", "pod", "late", &opt_in, "--overwrite"];
        let late = fixture.kubectl(&[&label[..], &as_admin[..]].concat()).await?;
        anyhow::Ok((without, with, hidden, late))
    };
    let attempts = attempts.await;
    try_join_all(services.iter().map(ServiceInstance::start)).await?;
    podward.until_webhooks_are_called().await?;
    let (without, with, hidden, late) = attempts?;
    ensure!(without.code != Some(0) && without.said.contains("did not record"), "{without:?}");
    with.succeeded()?;
    ensure!(hidden.code != Some(0) && hidden.said.contains("only Podward writes"), "{hidden:?}");
    ensure!(late.code != Some(0) && late.said.contains("before the pod opted in"), "{late:?}");
    fixture.kubectl(&["delete", "pod", "late"]).await?.succeeded()?;
    let note = fixture.until_event("web", "DeletionCancelled").await?;
    ensure!(note.contains("may not delete pods"), "{note}");
    let pod = fixture.until_available("web").await?;
    ensure!(pod.metadata.deletion_timestamp.is_none(), "the pod is being deleted");
    Ok(())
}
