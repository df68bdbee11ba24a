//! Users who may update pods, but not delete them, and try to have them deleted by writing to them.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use serde_json::json;

use crate::deletion::objects::make;

/// A user who may get and patch pods.
const PATCHER: &str = "patcher";
/// A user with the role `admin` of Kubernetes in the namespace of the test.
const ADMIN: &str = "namespace-admin";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated(
            "a_user_who_may_only_patch_pods_marks_none_for_deletion",
            a_user_who_may_only_patch_pods_marks_none_for_deletion,
        ),
        Test::simulated("break_glass_needs_its_own_verb", break_glass_needs_its_own_verb),
        Test::simulated(
            "opting_out_during_an_operation_names_the_writer",
            opting_out_during_an_operation_names_the_writer,
        ),
    ]
}

async fn bind(fixture: &Fixture, user: &str, kind: &str, role: &str) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    make(
        fixture,
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
            "metadata": {"name": user, "namespace": fixture.namespace()},
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }),
    )
    .await
}

/// Creates the users and a pod.
async fn prepare(fixture: &Fixture) -> Result<()> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": PATCHER, "namespace": fixture.namespace()},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}],
    });
    make(fixture, role).await?;
    bind(fixture, PATCHER, "Role", PATCHER).await?;
    bind(fixture, ADMIN, "ClusterRole", "admin").await?;
    fixture.create("web").await?;
    fixture.until_available("web").await.map(drop)
}

/// Podward is strict here. By default, the label is only a warning.
async fn a_user_who_may_only_patch_pods_marks_none_for_deletion(fixture: Arc<Fixture>) -> Result<()> {
    prepare(&fixture).await?;
    let label = format!("{}=1", keys::TO_DELETE);
    let answer = fixture.kubectl(&["label", "pod", "web", &label, "--as", PATCHER]).await?;
    ensure!(answer.code != Some(0) && answer.said.contains("may not delete pods"), "{answer:?}");
    let request = json!({"kind": "Delete", "requestedBy": ADMIN, "requestedAt": 1}).to_string();
    let request = format!("{}={request}", keys::DELETION_REQUEST);
    for user in [PATCHER, ADMIN] {
        let answer = fixture.kubectl(&["annotate", "pod", "web", &request, "--as", user]).await?;
        ensure!(answer.code != Some(0) && answer.said.contains("only Podward writes"), "{answer:?}");
    }
    let pod = fixture.until_available("web").await?;
    ensure!(pod.metadata.deletion_timestamp.is_none(), "the pod is being deleted");
    Ok(())
}

async fn break_glass_needs_its_own_verb(fixture: Arc<Fixture>) -> Result<()> {
    prepare(&fixture).await?;
    let glass = format!("{}=INC-7", keys::BREAK_GLASS);
    let answer = fixture.kubectl(&["annotate", "pod", "web", &glass, "--as", PATCHER]).await?;
    ensure!(
        answer.code != Some(0) && answer.said.contains("may not break-glass pods.podward.io"),
        "{answer:?}"
    );
    // The role of the chart is aggregated to `admin`.
    fixture.kubectl(&["annotate", "pod", "web", &glass, "--as", ADMIN]).await?.succeeded()?;
    fixture.kubectl(&["delete", "pod", "web", "--wait=false", "--as", ADMIN]).await?.succeeded()?;
    Ok(())
}

async fn opting_out_during_an_operation_names_the_writer(fixture: Arc<Fixture>) -> Result<()> {
    prepare(&fixture).await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    let leave = format!("{}-", keys::CONTROL_LABEL);
    fixture.kubectl(&["label", "pod", "web", &leave, "--as", PATCHER]).await?.succeeded()?;
    let note = fixture.until_event("web", "OptedOut").await?;
    ensure!(note.contains(PATCHER) && note.contains("operations run: a"), "{note}");
    // The operation can be ended when the pod is opted in again.
    let back = format!("{}={}", keys::CONTROL_LABEL, keys::CONTROL_VALUE);
    fixture.kubectl(&["label", "pod", "web", &back]).await?.succeeded()?;
    operator.undo("web").await?;
    operator.await_end("web").await
}
