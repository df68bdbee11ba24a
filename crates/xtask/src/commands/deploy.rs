//! `cargo xtask deploy`: copies alerts and dashboard into the Helm chart, and renders it into files for kubectl and
//! kustomize.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use podward_support::rendered;
use podward_testbed::{Part, Progress, Tools};

/// Write `deploy/podward` from the Helm chart, and the chart's copies of `deploy/alerts` and `deploy/dashboards`.
#[derive(Debug, Args)]
pub(crate) struct Deploy {}

impl Deploy {
    pub(crate) async fn run(&self) -> Result<ExitCode> {
        rendered::copy_into_chart()?;
        let tools = Tools::ensure(&[Part::Helm], &Progress::stderr()).await?;
        let files = rendered::render(&tools.bin("helm"))?;
        let folder = rendered::folder();
        // Files that the chart no longer renders must go.
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        for (name, text) in files {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}
