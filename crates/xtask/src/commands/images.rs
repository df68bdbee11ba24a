//! `cargo xtask images`: OCI archives, written without any container tool.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use podward_support::{DemoImages, ServiceImages};
use podward_testbed::{Image, Progress, workspace_dir};

/// Write container images of this workspace's programs as OCI archives.
#[derive(Debug, Args)]
pub(crate) struct Images {
    /// The folder to write them to [default: target/images]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Registry in the names of the services' images, as `global.image.registry` of the chart has it
    #[arg(long, value_name = "HOST", default_value_t = ServiceImages::default().registry)]
    registry: String,
    /// The cargo profile that they are built in
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Their tag, `global.image.tag` of the chart
    #[arg(long, default_value_t = ServiceImages::default().tag)]
    tag: String,
}

impl Images {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let output = self.output.unwrap_or_else(|| workspace_dir().join("target/images"));
        std::fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;

        let write = |image: &Image, file: &str| -> Result<()> {
            let archive = output.join(file);
            let digest = image.write(&archive)?;
            println!("{}  {}  {digest}", archive.display(), image.name());
            Ok(())
        };
        let progress = Progress::stderr();
        let step = progress.step("build Podward's services and its plugin as static programs", None);
        let services = ServiceImages { registry: self.registry, tag: self.tag }.build(&self.profile).await?;
        step.done();
        for (program, image) in &services {
            write(image, &format!("{program}.tar"))?;
        }
        let step = progress.step("build the demo server as a static program", None);
        let demo = DemoImages::default().build(&self.profile).await?;
        step.done();
        for (image, version) in demo.iter().zip(["v1", "v2"]) {
            write(image, &format!("demo-server-{version}.tar"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
