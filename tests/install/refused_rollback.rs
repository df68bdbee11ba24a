//! A rollback with which objects would lose fields.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::ApiResource,
};
use podward_api::LifecycleHook;
use podward_support::{WAIT, within};
use serde_json::{Value, json};

use super::{job_rights, site::Site};

/// A field that this version does not know.
const FIELD: &str = "addedLater";
/// A hook that sets it.
const HOOK: &str = "later";

/// The definitions of a newer version have a field more, and one object sets it. The rollback is refused and changes
/// nothing. The way on that the message shows keeps the field.
pub(crate) async fn a_rollback_that_loses_a_field_is_refused(site: &Site) -> Result<()> {
    change_definitions(site, &json!([{"op": "add", "path": pointer(), "value": {"type": "string"}}])).await?;
    until_set(site).await?;
    let before = state(site).await?;

    let refused = site.helm(&["rollback", "podward", "1", "--wait", "--timeout", "3m"]).await.err();
    let refused = format!("{:#}", refused.context("Podward was rolled back, and an object loses a field")?);
    let lost = format!("does not have spec.{FIELD}, which is set in {HOOK}");
    ensure!(refused.contains("✗ failed  lifecyclehooks.podward.io of version"), "{refused}");
    ensure!(refused.contains(&lost) && refused.contains("helm rollback with --no-hooks"), "{refused}");
    // The other definitions have the field, too, but no object sets it.
    ensure!(refused.matches(FIELD).count() == refused.matches(&lost).count() * 2, "{refused}");
    ensure!(refused.contains("discoverybindings.podward.io: no object loses anything"), "{refused}");
    job_rights::are_all_used(site, job_rights::ROLLBACK_GUARD)?;
    let after = state(site).await?;
    ensure!(before == after, "the refused rollback changed something: {before}\n{after}");
    let output = site.plugin(&["doctor", "--before-rollback"]).await?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(!output.status.success() && said.contains(&lost), "{said}");

    let remove = "kubectl -n podward-system delete secret -l owner=helm,status=pending-rollback";
    ensure!(refused.contains(remove), "{refused}");
    ensure!(site.upgrade(&["crds.install=false"]).await.is_err(), "Helm upgraded after a pending rollback");
    let removed = site.shell(remove, std::path::Path::new("/")).await?;
    ensure!(removed.lines().count() == 1, "{removed}");
    definitions_are_not_deleted(site).await?;
    site.upgrade(&["crds.install=false"]).await.context("keep the newer definitions")?;
    let hook = hooks(site).get(HOOK).await.context("read the hook")?;
    ensure!(hook.data["spec"][FIELD].is_string(), "the field is lost: {}", hook.data);

    hooks(site).delete(HOOK, &DeleteParams::default()).await.context("delete the hook")?;
    change_definitions(site, &json!([{"op": "remove", "path": pointer()}])).await?;
    // The release contains the definitions again.
    site.upgrade(&[]).await
}

/// Helm deletes a definition that is not in the release any more, with all its objects, unless its annotation says otherwise.
/// So the chart refuses the upgrade, and names the annotation.
async fn definitions_are_not_deleted(site: &Site) -> Result<()> {
    let definition = "lifecyclehooks.podward.io";
    site.kubectl(&["annotate", "crd", definition, "helm.sh/resource-policy-"]).await?;
    let refused = site.upgrade(&["crds.install=false"]).await.err();
    let refused = format!("{:#}", refused.context("an upgrade deletes a definition and its objects")?);
    let way = format!("kubectl annotate crd {definition} helm.sh/resource-policy=keep");
    let said = refused.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(said.contains(&way), "{refused}");
    site.shell(&way, std::path::Path::new("/")).await?;
    Ok(())
}

/// Checks that a rollback has left nothing of its guard.
pub(crate) async fn nothing_is_left(site: &Site) -> Result<()> {
    let of_the_guard = "jobs,serviceaccounts,clusterroles,clusterrolebindings";
    let left = site.kubectl(&["get", of_the_guard, "--output=name"]).await?;
    ensure!(!left.contains(job_rights::ROLLBACK_GUARD), "{left}");
    Ok(())
}

fn pointer() -> String {
    format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{FIELD}")
}

async fn change_definitions(site: &Site, patch: &Value) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(site.client());
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=podward");
    let definitions = api.list(&ours).await.context("list the definitions")?.items;
    ensure!(definitions.len() == podward_api::crds().len(), "there are {} definitions", definitions.len());
    for definition in definitions {
        let patch = Patch::Json::<()>(serde_json::from_value(patch.clone())?);
        let name = definition.name_any();
        let changed = api.patch(&name, &PatchParams::default(), &patch).await;
        changed.with_context(|| format!("change the definition {name}"))?;
    }
    Ok(())
}

/// Creates the hook, and waits until the API server keeps the field.
async fn until_set(site: &Site) -> Result<()> {
    let hook = json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "LifecycleHook", "metadata": {"name": HOOK},
        "spec": {
            "podSelector": {"matchLabels": {"example.com/none": "none"}}, "phases": ["PreCheck"],
            "endpoint": {"url": "https://127.0.0.1:9"}, "failurePolicy": "Ignore", FIELD: "set",
        },
    });
    let apply = PatchParams::apply("podward-test").force();
    within(WAIT, || format!("the API server to keep the field {FIELD}"), async {
        loop {
            let applied = hooks(site).patch(HOOK, &apply, &Patch::Apply(&hook)).await;
            match applied {
                Ok(applied) if applied.data["spec"][FIELD].is_string() => return Ok(()),
                // Applying a field that the schema does not have is an error.
                Ok(_) | Err(kube::Error::Api(_)) => tokio::time::sleep(Duration::from_millis(200)).await,
                Err(error) => return Err(error).context("apply the hook"),
            }
        }
    })
    .await
}

fn hooks(site: &Site) -> Api<DynamicObject> {
    Api::all_with(site.client(), &ApiResource::erase::<LifecycleHook>(&()))
}

/// Returns the generations of what a rollback changes, and the hook's field.
async fn state(site: &Site) -> Result<String> {
    let each = "{range .items[*]}{.kind} {.metadata.name} {.metadata.generation}\n{end}";
    let generations =
        site.kubectl(&["get", "crd,deployments,daemonsets", &format!("--output=jsonpath={each}")]).await?;
    let hook = hooks(site).get(HOOK).await.context("read the hook")?;
    Ok(format!("{generations}{}", hook.data["spec"]))
}
