//! `deploy/crds` is what the types say.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use kube::ResourceExt;
use serde_json::Value;

#[test]
fn the_definitions_in_deploy_are_in_step_with_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let crds = podward_api::crds();
    for crd in &crds {
        let path = folder.join(format!("{}.yaml", crd.name_any()));
        let text = fs::read_to_string(&path).unwrap();
        let written: Value = serde_saphyr::from_str(&text).unwrap();
        let difference = json_patch::diff(&written, &serde_json::to_value(crd).unwrap());
        assert!(difference.0.is_empty(), "run `cargo xtask crds`: {} differs: {difference}", path.display());
    }
    assert_eq!(
        fs::read_dir(folder).unwrap().count(),
        crds.len(),
        "a file of a resource that there is no more"
    );
}
