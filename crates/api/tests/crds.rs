//! `deploy/crds` matches the types.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use kube::ResourceExt;
use serde_json::Value;

#[test]
fn the_definitions_in_deploy_match_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let crds = podward_api::crds();
    for crd in &crds {
        let path = folder.join(format!("{}.yaml", crd.name_any()));
        let text = fs::read_to_string(&path).unwrap();
        let written: Value = serde_saphyr::from_str(&text).unwrap();
        let difference = json_patch::diff(&written, &serde_json::to_value(crd).unwrap());
        assert!(difference.0.is_empty(), "run `cargo xtask crds`: {} differs: {difference}", path.display());
    }
    let kustomization = fs::read_to_string(folder.join("Kustomization")).unwrap();
    for crd in &crds {
        let line = format!("  - {}.yaml", crd.name_any());
        assert!(kustomization.lines().any(|found| found == line), "run `cargo xtask crds`: no line {line:?}");
    }
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let files: Vec<_> = names.filter(|name| name != "Kustomization").collect();
    assert_eq!(files.len(), crds.len(), "a file of a resource that does not exist: {files:?}");
}
