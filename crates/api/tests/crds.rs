//! `deploy/crds` and the chart's copy match the types.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use serde_json::Value;

const DEPLOY: &str = "deploy/crds";
const CHART: &str = "charts/podward/files/crds";

fn path(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)
}

/// Checks that the YAML files of the folder contain exactly these definitions.
fn check(folder: &Path, crds: &[CustomResourceDefinition]) {
    for crd in crds {
        let path = folder.join(format!("{}.yaml", crd.name_any()));
        let text = fs::read_to_string(&path).unwrap();
        let written: Value = serde_saphyr::from_str(&text).unwrap();
        let difference = json_patch::diff(&written, &serde_json::to_value(crd).unwrap());
        assert!(difference.0.is_empty(), "run `cargo xtask crds`: {} differs: {difference}", path.display());
    }
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    assert_eq!(files.len(), crds.len(), "a file of a resource that does not exist: {files:?}");
}

#[test]
fn the_definitions_match_the_types() {
    let crds = podward_api::crds();
    for folder in [DEPLOY, CHART] {
        check(&path(folder), &crds);
    }
    let kustomization = fs::read_to_string(path(DEPLOY).join("Kustomization")).unwrap();
    let listed: Vec<_> = kustomization.lines().filter_map(|line| line.strip_prefix("  - ")).collect();
    let names: Vec<_> = crds.iter().map(|crd| format!("{}.yaml", crd.name_any())).collect();
    assert_eq!(listed, names, "run `cargo xtask crds`");
}

/// `kubectl apply` of `deploy/crds` must not replace the definition of OpenKruise.
#[test]
fn the_definition_of_clonesets_is_in_a_folder_of_its_own() {
    for folder in [DEPLOY, CHART] {
        check(&path(folder).join("cloneset"), &[podward_api::clone_set_crd()]);
    }
}
