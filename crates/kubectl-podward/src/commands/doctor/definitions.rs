//! Whether the cluster serves the resources that this version needs.

use anyhow::{Context, Result};
use json_patch::{PatchOperation, diff};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::finding::Finding;
use super::site::Site;

const APPLY: &str = "helm upgrade brings definitions up to date; with crds.install=false: kubectl apply --server-side \
                     --force-conflicts -f deploy/crds of this version";
/// Places that a finding names; more would hide what matters.
const NAMED: usize = 3;

pub(super) async fn check(site: &Site) -> Result<Vec<Finding>> {
    let api: Api<CustomResourceDefinition> = Api::all(site.client.clone());
    let mut findings = Vec::new();
    for needed in podward_api::crds() {
        let name = needed.name_any();
        let found =
            api.get_opt(&name).await.with_context(|| format!("read the resource definition {name}"))?;
        findings.push(judge(&needed, found.as_ref())?);
    }
    Ok(findings)
}

fn judge(needed: &CustomResourceDefinition, found: Option<&CustomResourceDefinition>) -> Result<Finding> {
    let name = needed.name_any();
    let Some(found) = found else {
        return Ok(Finding::failed(format!("there is no resource definition {name}"), APPLY));
    };
    let conditions = found.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let wrong =
        conditions.clone().find(|condition| condition.type_ == "NamesAccepted" && condition.status != "True");
    let is_established =
        conditions.clone().any(|condition| condition.type_ == "Established" && condition.status == "True");
    if !is_established || wrong.is_some() {
        let why = wrong
            .and_then(|condition| condition.message.as_deref())
            .unwrap_or("the API server doesn't serve it");
        return Ok(Finding::failed(
            format!("{name} is not Established: {why}"),
            format!("kubectl describe crd {name} says what is in its way"),
        ));
    }
    for version in &needed.spec.versions {
        let served = found.spec.versions.iter().find(|found| found.name == version.name && found.served);
        let Some(served) = served else {
            let there: Vec<&str> = found.spec.versions.iter().map(|version| version.name.as_str()).collect();
            let what = format!("{name} serves {}, and not {}", there.join(", "), version.name);
            return Ok(Finding::failed(what, APPLY));
        };
        if let Some(finding) = compare(&name, version, served)? {
            return Ok(finding);
        }
    }
    Ok(Finding::ok(format!("{name} is Established, and is that of this version")))
}

fn compare(
    name: &str,
    needed: &CustomResourceDefinitionVersion,
    served: &CustomResourceDefinitionVersion,
) -> Result<Option<Finding>> {
    let (needed, served) = (substance(needed)?, substance(served)?);
    let (mut missing, mut unknown, mut other) = (Vec::new(), Vec::new(), Vec::new());
    for change in diff(&served, &needed).0 {
        match change {
            PatchOperation::Add(it) => missing.push(place(&it.path.to_string())),
            PatchOperation::Remove(it) => unknown.push(place(&it.path.to_string())),
            PatchOperation::Replace(it) => other.push(place(&it.path.to_string())),
            _ => {}
        }
    }
    Ok(match (missing.is_empty(), unknown.is_empty(), other.is_empty()) {
        (true, true, true) => None,
        (false, true, true) => Some(Finding::failed(
            format!("{name} is older than this version: it lacks {}", some(&missing)),
            APPLY,
        )),
        (true, false, true) => Some(Finding::warning(
            format!("{name} is newer than this version: it also has {}", some(&unknown)),
            "use the doctor of the version that is installed, or upgrade Podward to that of its definitions",
        )),
        _ => {
            other.extend(missing.into_iter().chain(unknown));
            Some(Finding::failed(
                format!("{name} is of another version: it differs in {}", some(&other)),
                APPLY,
            ))
        }
    })
}

/// What decides which objects are taken. Descriptions don't.
fn substance(version: &CustomResourceDefinitionVersion) -> Result<Value> {
    let mut value = json!({"schema": &version.schema, "subresources": &version.subresources});
    without_descriptions(&mut value["schema"]);
    // As it comes back from the API server: nothing is what isn't there.
    if value["subresources"].is_null() {
        value["subresources"] = json!({});
    }
    Ok(value)
}

fn without_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            // A property may have that name, too: then it is a schema.
            if members.get("description").is_some_and(Value::is_string) {
                members.remove("description");
            }
            members.values_mut().for_each(without_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(without_descriptions),
        _ => {}
    }
}

/// `spec.phases.maxItems` for its place in the schema.
fn place(pointer: &str) -> String {
    let skipped = ["", "schema", "openAPIV3Schema", "properties", "items"];
    pointer.split('/').filter(|part| !skipped.contains(part)).collect::<Vec<_>>().join(".")
}

fn some(places: &[String]) -> String {
    let named = places.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match places.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("{named} and {more} more"),
        _ => named,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn needed() -> CustomResourceDefinition {
        podward_api::crds().remove(0)
    }

    /// The needed one as the API server gives it back, changed by `change`.
    fn served(change: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut value = serde_json::to_value(needed()).unwrap();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": null});
        value["status"] = json!({"conditions": [condition("NamesAccepted"), condition("Established")]});
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn judged(change: impl FnOnce(&mut Value)) -> (Level, String) {
        let finding = judge(&needed(), Some(&served(change))).unwrap();
        (finding.level, finding.what)
    }

    fn spec(value: &mut Value) -> &mut Value {
        &mut value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    }

    #[test]
    fn what_this_version_needs_is_well() {
        assert_eq!(judged(|_| {}).0, Level::Ok);
        assert_eq!(judged(|value| spec(value)["order"]["description"] = json!("other words")).0, Level::Ok);
    }

    #[test]
    fn what_is_not_there_or_not_served_fails() {
        let missing = judge(&needed(), None).unwrap();
        assert_eq!(
            (missing.level, missing.what.as_str()),
            (Level::Failed, "there is no resource definition lifecyclehooks.podward.io")
        );
        let (level, what) = judged(|value| {
            value["status"]["conditions"][0]["status"] = json!("False");
            value["status"]["conditions"][0]["message"] = json!("\"lh\" is already in use");
        });
        assert_eq!(
            (level, what.as_str()),
            (Level::Failed, "lifecyclehooks.podward.io is not Established: \"lh\" is already in use")
        );
        assert_eq!(judged(|value| value["status"] = json!({})).0, Level::Failed);
        let (level, what) = judged(|value| value["spec"]["versions"][0]["name"] = json!("v1alpha0"));
        assert_eq!(
            (level, what.as_str()),
            (Level::Failed, "lifecyclehooks.podward.io serves v1alpha0, and not v1alpha1")
        );
    }

    #[test]
    fn an_older_one_a_newer_one_and_another_one_are_told_apart() {
        let (level, what) = judged(|value| {
            spec(value).as_object_mut().unwrap().remove("order");
        });
        assert_eq!(
            (level, what.as_str()),
            (Level::Failed, "lifecyclehooks.podward.io is older than this version: it lacks spec.order")
        );
        let (level, what) = judged(|value| spec(value)["shard"] = json!({"type": "string"}));
        assert_eq!(
            (level, what.as_str()),
            (Level::Warning, "lifecyclehooks.podward.io is newer than this version: it also has spec.shard")
        );
        let (level, what) = judged(|value| {
            spec(value)["order"]["maximum"] = json!(10);
            spec(value)["shard"] = json!({"type": "string"});
        });
        assert_eq!(level, Level::Failed);
        assert!(what.contains("of another version: it differs in spec.order.maximum, spec.shard"), "{what}");
        let (level, _) = judged(|value| {
            value["spec"]["versions"][0].as_object_mut().unwrap().remove("subresources");
        });
        assert_eq!(level, Level::Failed);
    }
}
