//! `cargo xtask crds`: writes the custom resource definitions from their Rust types.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use podward_images::workspace_dir;

const HEAD: &str = "# Written by `cargo xtask crds` from the types in crates/api. Changes belong there.\n";

/// Write `deploy/crds`, and the chart's copy, from the types in `crates/api`.
#[derive(Debug, Args)]
pub(crate) struct Crds {}

impl Crds {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let crds = podward_api::crds();
        let deploy = workspace_dir().join("deploy/crds");
        // The chart has a copy and not a link: not every tool that reads a chart from a repository follows links.
        let chart = workspace_dir().join("charts/podward/files/crds");
        for folder in [&deploy, &chart] {
            for crd in &crds {
                write(folder, crd)?;
            }
            // It takes the place of OpenKruise's: `kubectl apply` of the folder does not read the folders in it.
            write(&folder.join("cloneset"), &podward_api::clone_set_crd())?;
        }
        let names: String = crds.iter().map(|crd| format!("  - {}.yaml\n", crd.name_any())).collect();
        // `kubectl apply -f` of the folder reads only *.yaml, *.yml and *.json, so this name keeps it out.
        let path = deploy.join("Kustomization");
        let kustomization = format!(
            "{HEAD}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{names}"
        );
        fs::write(&path, kustomization).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
        Ok(ExitCode::SUCCESS)
    }
}

fn write(folder: &Path, crd: &CustomResourceDefinition) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let name = crd.name_any();
    let text = serde_saphyr::to_string(crd).with_context(|| format!("cannot write {name} as YAML"))?;
    let path = folder.join(format!("{name}.yaml"));
    fs::write(&path, format!("{HEAD}{text}")).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}
