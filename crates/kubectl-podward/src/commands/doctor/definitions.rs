//! Checks that the cluster serves the custom resources of this version.

use anyhow::{Context, Result};
use json_patch::{PatchOperation, diff};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::finding::{Finding, first_names};
use super::target::DoctorTarget;

const APPLY: &str = "run helm upgrade to update the definitions; with crds.install=false: kubectl apply --server-side \
                     --force-conflicts -f deploy/crds of this version";

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let api: Api<CustomResourceDefinition> = Api::all(target.client.clone());
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
            .unwrap_or("the API server does not serve it");
        return Ok(Finding::failed(
            format!("{name} is not Established: {why}"),
            format!("kubectl describe crd {name} shows the reason"),
        ));
    }
    for version in &needed.spec.versions {
        let served = found.spec.versions.iter().find(|found| found.name == version.name && found.served);
        let Some(served) = served else {
            let there: Vec<&str> = found.spec.versions.iter().map(|version| version.name.as_str()).collect();
            let what = format!("{name} serves {}, but not {}", there.join(", "), version.name);
            return Ok(Finding::failed(what, APPLY));
        };
        if let Some(finding) = compare(&name, version, served)? {
            return Ok(finding);
        }
    }
    Ok(Finding::ok(format!("{name} is Established and matches this version")))
}

fn compare(
    name: &str,
    needed: &CustomResourceDefinitionVersion,
    served: &CustomResourceDefinitionVersion,
) -> Result<Option<Finding>> {
    let (needed, served) = (comparable(needed)?, comparable(served)?);
    let (mut missing, mut unknown, mut other) = (Vec::new(), Vec::new(), Vec::new());
    for change in diff(&served, &needed).0 {
        match change {
            PatchOperation::Add(it) => missing.push(field(&it.path.to_string())),
            PatchOperation::Remove(it) => unknown.push(field(&it.path.to_string())),
            PatchOperation::Replace(it) => other.push(field(&it.path.to_string())),
            _ => {}
        }
    }
    Ok(match (missing.is_empty(), unknown.is_empty(), other.is_empty()) {
        (true, true, true) => None,
        (false, true, true) => Some(Finding::failed(
            format!("{name} is older than this version: it has no {}", first_names(&missing)),
            APPLY,
        )),
        (true, false, true) => Some(Finding::warning(
            format!("{name} is newer than this version: it also has {}", first_names(&unknown)),
            "use the doctor of the installed version, or upgrade Podward to the version of the definitions",
        )),
        _ => {
            other.extend(missing.into_iter().chain(unknown));
            Some(Finding::failed(
                format!("{name} does not match this version: it differs in {}", first_names(&other)),
                APPLY,
            ))
        }
    })
}

/// Returns the parts of a version that decide which objects are valid. Descriptions do not.
pub(super) fn comparable(version: &CustomResourceDefinitionVersion) -> Result<Value> {
    let mut value = json!({"schema": &version.schema, "subresources": &version.subresources});
    without_descriptions(&mut value["schema"]);
    // The API server omits empty subresources.
    if value["subresources"].is_null() {
        value["subresources"] = json!({});
    }
    Ok(value)
}

fn without_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            // A property can have this name too; then the value is a schema.
            if members.get("description").is_some_and(Value::is_string) {
                members.remove("description");
            }
            members.values_mut().for_each(without_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(without_descriptions),
        _ => {}
    }
}

/// Returns the field for a JSON pointer into the schema, such as `spec.phases.maxItems`.
fn field(pointer: &str) -> String {
    let skipped = ["", "schema", "openAPIV3Schema", "properties", "items"];
    pointer.split('/').filter(|part| !skipped.contains(part)).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingLevel;
    use super::*;

    fn needed() -> CustomResourceDefinition {
        podward_api::crds().remove(0)
    }

    /// Returns the needed definition as the API server returns it, changed by `change`.
    fn served(change: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut value = serde_json::to_value(needed()).unwrap();
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "Fine", "message": "",
                  "lastTransitionTime": null})
        };
        value["status"] = json!({"conditions": [condition("NamesAccepted"), condition("Established")]});
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn judged(change: impl FnOnce(&mut Value)) -> (FindingLevel, String) {
        let finding = judge(&needed(), Some(&served(change))).unwrap();
        (finding.level, finding.what)
    }

    fn spec(value: &mut Value) -> &mut Value {
        &mut value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    }

    #[test]
    fn definitions_of_this_version_are_ok() {
        assert_eq!(judged(|_| {}).0, FindingLevel::Ok);
        assert_eq!(
            judged(|value| spec(value)["order"]["description"] = json!("other words")).0,
            FindingLevel::Ok
        );
    }

    #[test]
    fn missing_or_unserved_definitions_fail() {
        let missing = judge(&needed(), None).unwrap();
        assert_eq!(
            (missing.level, missing.what.as_str()),
            (FindingLevel::Failed, "there is no resource definition lifecyclehooks.podward.io")
        );
        let (level, what) = judged(|value| {
            value["status"]["conditions"][0]["status"] = json!("False");
            value["status"]["conditions"][0]["message"] = json!("\"lh\" is already in use");
        });
        assert_eq!(
            (level, what.as_str()),
            (FindingLevel::Failed, "lifecyclehooks.podward.io is not Established: \"lh\" is already in use")
        );
        assert_eq!(judged(|value| value["status"] = json!({})).0, FindingLevel::Failed);
        let (level, what) = judged(|value| value["spec"]["versions"][0]["name"] = json!("v1alpha0"));
        assert_eq!(
            (level, what.as_str()),
            (FindingLevel::Failed, "lifecyclehooks.podward.io serves v1alpha0, but not v1alpha1")
        );
    }

    #[test]
    fn older_newer_and_other_versions_are_distinguished() {
        let (level, what) = judged(|value| {
            spec(value).as_object_mut().unwrap().remove("order");
        });
        assert_eq!(
            (level, what.as_str()),
            (
                FindingLevel::Failed,
                "lifecyclehooks.podward.io is older than this version: it has no spec.order"
            )
        );
        let (level, what) = judged(|value| spec(value)["shard"] = json!({"type": "string"}));
        assert_eq!(
            (level, what.as_str()),
            (
                FindingLevel::Warning,
                "lifecyclehooks.podward.io is newer than this version: it also has spec.shard"
            )
        );
        let (level, what) = judged(|value| {
            spec(value)["order"]["maximum"] = json!(10);
            spec(value)["shard"] = json!({"type": "string"});
        });
        assert_eq!(level, FindingLevel::Failed);
        assert!(
            what.contains("does not match this version: it differs in spec.order.maximum, spec.shard"),
            "{what}"
        );
        let (level, _) = judged(|value| {
            value["spec"]["versions"][0].as_object_mut().unwrap().remove("subresources");
        });
        assert_eq!(level, FindingLevel::Failed);
    }
}
