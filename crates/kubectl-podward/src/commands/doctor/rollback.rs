//! `kubectl podward doctor --before-rollback`: whether objects would lose something if the resource definitions of this
//! version took the place of those in the cluster.

mod advice;
mod loss;

use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::api::{DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::definitions::comparable;
use super::finding::{Finding, FindingLevel};
use super::report::CheckReport;
use super::run::run_check;
use crate::api::{list_all, with_timeout};
use advice::advice;
use loss::{LostFields, of_fields, of_versions};

/// A definition of this version, and the one in the cluster.
struct DefinitionPair {
    own: CustomResourceDefinition,
    /// `None` if the cluster does not have it.
    found: Option<CustomResourceDefinition>,
}

/// Runs the check. `namespace` is Podward's, and `clonesets` is true if the rollback takes the definition of CloneSets
/// back, too.
pub(super) async fn checks(
    client: &Client,
    namespace: &str,
    clonesets: bool,
    deadline: Duration,
) -> Vec<CheckReport> {
    let mut own = podward_api::crds();
    own.extend(clonesets.then(podward_api::clone_set_crd));
    let mut not_kept = Vec::new();
    let report = run_check("resource definitions", check(client, own, &mut not_kept).boxed(), deadline).await;
    let failed = report.findings.iter().any(|finding| finding.level == FindingLevel::Failed);
    let mut reports = vec![report];
    if failed {
        reports.push(CheckReport { name: "how to go on", findings: advice(namespace, &not_kept) });
    }
    reports
}

/// Writes the definitions that Helm would delete with a chart without them to `not_kept`.
async fn check(
    client: &Client,
    own: Vec<CustomResourceDefinition>,
    not_kept: &mut Vec<String>,
) -> Result<Vec<Finding>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut findings = Vec::new();
    for own in own {
        let name = own.name_any();
        let found = with_timeout(api.get_opt(&name)).await;
        let found = found.with_context(|| format!("read the resource definition {name}"))?;
        if found.as_ref().is_some_and(|found| !advice::is_kept(found)) {
            not_kept.push(name);
        }
        findings.extend(check_definition(client, &DefinitionPair { own, found }).await?);
    }
    Ok(findings)
}

async fn check_definition(client: &Client, pair: &DefinitionPair) -> Result<Vec<Finding>> {
    let name = pair.own.name_any();
    let Some(found) = &pair.found else {
        return Ok(vec![Finding::ok(format!("{name} does not exist, so no object loses anything"))]);
    };
    let mut findings = Vec::new();
    let lost = podward_api::downgrade::lost_versions(found, &pair.own);
    if !lost.is_empty() {
        // Without a version that is served there are no objects to see.
        let served = found.spec.versions.iter().find(|version| version.served);
        let objects = match served {
            Some(version) => objects(client, found, &version.name).await?.len(),
            None => 0,
        };
        findings.extend(of_versions(&name, &lost, objects));
    }
    let mut fields = LostFields::default();
    for own in pair.own.spec.versions.iter().filter(|version| version.served) {
        let there = found.spec.versions.iter().find(|there| there.name == own.name && there.served);
        let Some(there) = there else { continue };
        // Most versions have the same schemas. Then no object is read.
        if !is_same(own, there)? {
            for object in objects(client, found, &own.name).await? {
                let value = object_value(&object)?;
                fields.add(&object, podward_api::downgrade::lost_fields(&value, there, own));
            }
        }
    }
    findings.extend(of_fields(&name, &fields));
    if findings.is_empty() {
        findings.push(Finding::ok(format!("{name}: no object loses anything")));
    }
    Ok(findings)
}

fn is_same(own: &CustomResourceDefinitionVersion, there: &CustomResourceDefinitionVersion) -> Result<bool> {
    Ok(comparable(own)? == comparable(there)?)
}

fn object_value(object: &DynamicObject) -> Result<Value> {
    serde_json::to_value(object).with_context(|| format!("read {}", object.name_any()))
}

/// Lists all objects of a definition in one of its versions.
async fn objects(
    client: &Client,
    definition: &CustomResourceDefinition,
    version: &str,
) -> Result<Vec<DynamicObject>> {
    let spec = &definition.spec;
    let resource = ApiResource {
        group: spec.group.clone(),
        version: version.to_owned(),
        api_version: format!("{}/{version}", spec.group),
        kind: spec.names.kind.clone(),
        plural: spec.names.plural.clone(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    list_all(&api, ListParams::default()).await.with_context(|| format!("list {}", definition.name_any()))
}
