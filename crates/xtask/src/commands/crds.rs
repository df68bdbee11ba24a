//! `cargo xtask crds`: writes the custom resource definitions from their Rust types.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use kube::ResourceExt;
use podward_images::workspace_dir;

const HEAD: &str = "# Written by `cargo xtask crds` from the types in crates/api. Changes belong there.\n";

/// Write `deploy/crds` from the types in `crates/api`.
#[derive(Debug, Args)]
pub(crate) struct Crds {}

impl Crds {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let folder = workspace_dir().join("deploy/crds");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut names = String::new();
        for crd in podward_api::crds() {
            let name = crd.name_any();
            names.push_str(&format!("  - {name}.yaml\n"));
            let text =
                serde_saphyr::to_string(&crd).with_context(|| format!("cannot write {name} as YAML"))?;
            let path = folder.join(format!("{name}.yaml"));
            fs::write(&path, format!("{HEAD}{text}"))
                .with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
        // `kubectl apply -f` of the folder reads only *.yaml, *.yml and *.json, so this name keeps it out.
        let path = folder.join("Kustomization");
        let kustomization = format!(
            "{HEAD}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{names}"
        );
        fs::write(&path, kustomization).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
        Ok(ExitCode::SUCCESS)
    }
}
