//! Each service has the rights that it uses, and no others, so that removing a rule breaks something. The rights of the
//! jobs of `helm test` and `helm uninstall` are checked in `tests/install`.
//!
//! The used rights are those in the API server's audit log for its account since the start of the test cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};
use podward_e2e::{
    Fixture, Test,
    rights::{AccessRight, RecordedAccess, lines, rendered_rights},
};
use podward_support::{Installation, ServiceKind};

use super::{
    feature_tour::every_kind_of_work,
    service_fixture::{in_service, until_gone},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::serving_alone("every_right_is_used_and_none_is_missing", every_right_is_used)]
}

const NAMESPACE: &str = Installation::NAMESPACE;

/// The rights that are used in ways that the log does not show, or not within a test's time.
const OTHERWISE: [(&str, &str, &str); 27] = [
    // The lifecycle-controller checks the rights with the API server at a registration over gRPC. The second one is
    // used when the certificate authority is renewed.
    ("traffic-controller", "create", "podward.io/lifecyclehooks"),
    ("traffic-controller", "update", "podward.io/lifecyclehooks"),
    ("service-discovery-bridge", "create", "podward.io/lifecyclehooks"),
    ("service-discovery-bridge", "update", "podward.io/lifecyclehooks"),
    ("service-discovery-bridge", "delete", "podward.io/lifecyclehooks"),
    // The API server asks for it when a server-side apply creates the Lease, which the log has as a patch.
    ("service-discovery-bridge", "create", "coordination.k8s.io/leases"),
    // When a reservation in a budget has expired after a minute, and the budget has no room any more.
    ("lifecycle-controller", "watch", "policy/poddisruptionbudgets"),
    // When another writer was faster to write the status of a rule.
    ("lifecycle-controller", "get", "apps.kusionstack.io/podtransitionrules"),
    // The kinds of other projects, which this cluster does not have.
    ("lifecycle-controller", "get", "apps.kusionstack.io/collasets"),
    ("lifecycle-controller", "list", "apps.kusionstack.io/collasets"),
    ("lifecycle-controller", "watch", "apps.kusionstack.io/collasets"),
    ("lifecycle-controller", "get", "apps.kruise.io/clonesets"),
    ("lifecycle-controller", "list", "apps.kruise.io/clonesets"),
    ("lifecycle-controller", "watch", "apps.kruise.io/clonesets"),
    ("lifecycle-controller", "get", "apps.kruise.io/statefulsets"),
    ("lifecycle-controller", "list", "apps.kruise.io/statefulsets"),
    ("lifecycle-controller", "watch", "apps.kruise.io/statefulsets"),
    ("traffic-controller", "list", "gateway.networking.k8s.io/httproutes"),
    ("traffic-controller", "watch", "gateway.networking.k8s.io/httproutes"),
    ("traffic-controller", "list", "gateway.networking.k8s.io/grpcroutes"),
    ("traffic-controller", "watch", "gateway.networking.k8s.io/grpcroutes"),
    ("traffic-controller", "list", "elbv2.k8s.aws/targetgroupbindings"),
    ("traffic-controller", "watch", "elbv2.k8s.aws/targetgroupbindings"),
    // Where the admission plugin OwnerReferencesPermissionEnforcement is on.
    ("cloneset-controller", "update", "apps.kruise.io/clonesets/finalizers"),
    ("cloneset-controller", "update", "pods/finalizers"),
    // When both replicas want the Lease of a leader that has ended.
    ("cloneset-controller", "get", "coordination.k8s.io/leases"),
    // While its watch of namespaces is broken.
    ("validating-webhook", "get", "namespaces"),
];

async fn every_right_is_used(fixture: Arc<Fixture>) -> Result<()> {
    every_kind_of_work(&fixture).await?;
    let installation = fixture.installation()?;
    // Deletes that wait for their pod, and certificates that are renewed soon.
    installation
        .upgrade(&["validating-webhook.waitSeconds=2", "global.certificates.lifetimeSeconds=86400"])
        .await?;
    // A replica that ends still answers on open connections, and does not wait.
    installation.scale(ServiceKind::ValidatingWebhook, 2).await?;
    in_service(&fixture, "waited-for", ["waited-for"]).await?;
    // Deleted or rejected after two seconds. Only the wait matters.
    drop(fixture.api().delete("waited-for", &DeleteParams::default()).await);
    until_gone(&fixture, "waited-for").await?;
    installation.upgrade(&[]).await?;
    let granted = granted(fixture.client()).await?;
    ensure!(granted.len() > 50, "only {} rights were found", granted.len());
    let log = fixture
        .cluster()
        .test_cluster()
        .and_then(|test_cluster| test_cluster.audit_log())
        .context("the test cluster has no audit log")?;
    let mut done = RecordedAccess::read(&log)?;
    let granted_by = rendered_rights()?;
    ensure!(done.forbidden.is_empty(), "was forbidden: {}", lines(&done.forbidden, &granted_by));
    let otherwise = OTHERWISE.map(|(account, verb, resource)| AccessRight {
        account: account.to_owned(),
        verb: verb.to_owned(),
        resource: resource.to_owned(),
    });
    let stale: BTreeSet<AccessRight> =
        otherwise.iter().filter(|right| !granted.contains(right)).cloned().collect();
    ensure!(stale.is_empty(), "excepted here, and not granted any more: {}", lines(&stale, &granted_by));
    done.allowed.extend(otherwise);
    let unused: BTreeSet<AccessRight> = granted.difference(&done.allowed).cloned().collect();
    ensure!(
        unused.is_empty(),
        "allowed, and not used; remove the right, or add what uses it to the test: {}",
        lines(&unused, &granted_by)
    );
    Ok(())
}

/// Returns the rights of the roles of Podward's accounts.
async fn granted(client: Client) -> Result<BTreeSet<AccessRight>> {
    let mut all = BTreeSet::new();
    let everything = ListParams::default();
    let cluster: BTreeMap<String, Vec<PolicyRule>> = Api::<ClusterRole>::all(client.clone())
        .list(&everything)
        .await
        .context("list ClusterRoles")?
        .into_iter()
        .map(|role| (role.name_any(), role.rules.unwrap_or_default()))
        .collect();
    let bindings = Api::<ClusterRoleBinding>::all(client.clone()).list(&everything).await;
    for binding in bindings.context("list ClusterRoleBindings")? {
        grant(&mut all, binding.subjects, cluster.get(&binding.role_ref.name));
    }
    // The Role in `default` is for the addresses of the API server.
    for namespace in [NAMESPACE, "default"] {
        let roles: BTreeMap<String, Vec<PolicyRule>> = Api::<Role>::namespaced(client.clone(), namespace)
            .list(&everything)
            .await
            .context("list Roles")?
            .into_iter()
            .map(|role| (role.name_any(), role.rules.unwrap_or_default()))
            .collect();
        let bindings = Api::<RoleBinding>::namespaced(client.clone(), namespace).list(&everything).await;
        for binding in bindings.context("list RoleBindings")? {
            grant(&mut all, binding.subjects, roles.get(&binding.role_ref.name));
        }
    }
    Ok(all)
}

fn grant(all: &mut BTreeSet<AccessRight>, subjects: Option<Vec<Subject>>, rules: Option<&Vec<PolicyRule>>) {
    let is_ours = |subject: &Subject| {
        subject.kind == "ServiceAccount" && subject.namespace.as_deref() == Some(NAMESPACE)
    };
    for subject in subjects.into_iter().flatten().filter(is_ours) {
        for rule in rules.into_iter().flatten() {
            all.extend(AccessRight::of_rule(&subject.name, rule));
        }
    }
}
