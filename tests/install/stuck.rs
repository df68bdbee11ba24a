//! An uninstall whose guard fails, and a finalizer of an external consumer that is gone.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use podward_support::{WAIT, within};
use serde_json::json;

use super::site::Site;

/// The finalizer of a consumer that no longer exists.
const ORPHAN: &str = "prot.podopslifecycle.kusionstack.io/balancer-that-was";
/// A policy that rejects all writes to the status of one pod, except those of its kubelet.
const REFUSES: &str = "refuses-the-guard";

/// One pod cannot be released: the uninstall fails, names the pod and the reason, and succeeds when it is run again
/// after the fix. Until then, Helm neither upgrades nor installs the release. Finalizers of external consumers stay,
/// until a user states that the consumer is gone.
pub(crate) async fn a_guard_that_fails(site: &Site, namespace: &str, pod: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(site.client(), namespace);
    let add = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": ORPHAN}]);
    let add = Patch::Json::<()>(serde_json::from_value(add)?);
    pods.patch(pod, &PatchParams::default(), &add)
        .await
        .context("add a finalizer of an external consumer")?;
    site.upgrade(&["uninstallGuard.timeoutSeconds=60"]).await?;
    refuse(site, &pods, namespace, pod).await?;

    let failed = site.helm(&["uninstall", "podward", "--wait", "--timeout", "5m"]).await.err();
    let failed = format!("{:#}", failed.context("Podward was uninstalled, and a pod was not released")?);
    let words = format!("{namespace}/{pod}: could not be released");
    let said = site.kubectl(&["logs", "job/podward-uninstall-guard"]).await?;
    ensure!(said.contains(&words) && said.contains(REFUSES), "the guard doesn't say why: {said}");
    ensure!(failed.contains(&words), "helm doesn't say why: {failed}");
    let webhooks = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
    let left = site.kubectl(&["get", webhooks, "--output=name"]).await?;
    ensure!(!left.contains("podward"), "deletes are still held: {left}");
    for (command, words) in
        [("upgrade", "has no deployed releases"), ("install", "cannot reuse a name that is still in use")]
    {
        let refused = site.helm(&[command, "podward", "charts/podward"]).await.err();
        let refused =
            refused.with_context(|| format!("helm {command} works although the uninstall has failed"))?;
        ensure!(format!("{refused:#}").contains(words), "{refused:#}");
    }

    let policies: Api<ValidatingAdmissionPolicyBinding> = Api::all(site.client());
    policies.delete(REFUSES, &DeleteParams::default()).await.context("remove the policy").map(drop)
}

/// The pods with [`ORPHAN`] are listed, and left alone until a user states that the consumer is gone.
pub(crate) async fn external_consumers(site: &Site, namespace: &str, pod: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(site.client(), namespace);
    let is_held = async || -> Result<bool> {
        let pod = pods.get(pod).await.context("look at the pod")?;
        Ok(pod.finalizers().iter().any(|finalizer| finalizer == ORPHAN))
    };
    let kept = site.plugin(&["release", "--all"]).await?;
    let said = String::from_utf8_lossy(&kept.stdout).into_owned();
    let words = format!("{namespace}/{pod}: kept finalizers of other controllers: {ORPHAN}");
    ensure!(kept.status.success() && said.contains(&words), "{kept:?}");
    ensure!(is_held().await?, "a finalizer of an external consumer was removed without request");
    let removed = site.plugin(&["release", "--all", "--third-party-finalizers"]).await?;
    ensure!(removed.status.success() && !is_held().await?, "{removed:?}");
    Ok(())
}

/// Creates the policy, and waits until it rejects writes.
async fn refuse(site: &Site, pods: &Api<Pod>, namespace: &str, pod: &str) -> Result<()> {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/status"], "operations": ["UPDATE"]});
    let expression = format!("object.metadata.name != '{pod}' || 'system:nodes' in request.userInfo.groups");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": REFUSES},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "as the test wants it"}],
        },
    });
    let namespaces = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": REFUSES},
        "spec": {
            "policyName": REFUSES, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": namespaces},
        },
    });
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(site.client());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(site.client());
    policies
        .create(&PostParams::default(), &serde_json::from_value(policy)?)
        .await
        .context("make a policy")?;
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await.context("bind it")?;
    let nothing = Patch::Merge(json!({"status": {"message": "refused"}}));
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let refused = async {
        while pods.patch_status(pod, &dry_run, &nothing).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        Ok(())
    };
    within(WAIT, || format!("writes to the status of pod {pod} to be refused"), refused).await
}
