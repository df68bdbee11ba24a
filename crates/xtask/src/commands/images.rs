//! `cargo xtask images`: OCI archives, written, loaded and pushed without any container tool.

#[cfg(test)]
mod dockerfile;
mod load;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use podward_support::{DemoImages, ServiceImages, WorkerImage};
use podward_testbed::{Blob, Image, Packed, Progress, workspace_dir};

use crate::registry::{Name, Registry};
use crate::sbom::Materials;
use load::{Loader, Target};

/// Write container images of this workspace's programs as OCI archives; load them into clusters, push them.
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
    /// Push the services' images to the registry, with the credentials in docker's config.json
    #[arg(long)]
    push: bool,
    /// Load all images into the nodes of a cluster: kind, kind:NAME or bed:NAME (of `cargo xtask testbed up`)
    #[arg(long, value_name = "CLUSTER")]
    load: Vec<Target>,
}

impl Images {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let output = self.output.unwrap_or_else(|| workspace_dir().join("target/images"));
        std::fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;
        // What can't work is said before the minutes that a build takes.
        let mut loaders = Vec::new();
        for target in &self.load {
            loaders.push(Loader::of(target).await?);
        }
        if self.push {
            format!("{}/podward/x:{}", self.registry, self.tag).parse::<Name>()?;
        }

        let progress = Progress::stderr();
        let step = progress.step("build Podward's services and its plugin as static programs", None);
        let services = ServiceImages { registry: self.registry, tag: self.tag }.build(&self.profile).await?;
        step.done();
        let names: Vec<_> = services.iter().map(|(service, _)| *service).collect();
        let materials = Materials::of(&names).await?;
        let mut written = Vec::new();
        for ((_, image), service) in services.iter().zip(&names) {
            let packed = write(image, &output.join(format!("{service}.tar")), &mut written)?;
            let file = format!("{service}.cdx.json");
            let document =
                materials.document(service).with_context(|| format!("list what is in {service}"))?;
            let place = output.join(&file);
            std::fs::write(&place, document.content())
                .with_context(|| format!("cannot write {}", place.display()))?;
            if self.push {
                let step = progress.step(&format!("push {}", image.name()), None);
                push(&packed, &document, &file).await?;
                step.done();
            }
        }
        let step = progress.step("build the demo server as a static program", None);
        let demo = DemoImages::default().build(&self.profile).await?;
        step.done();
        for (image, version) in demo.iter().zip(["v1", "v2"]) {
            write(image, &output.join(format!("demo-server-{version}.tar")), &mut written)?;
        }
        let step = progress.step("build the queue worker as a static program", None);
        let worker = WorkerImage::default().build(&self.profile).await?;
        step.done();
        write(&worker, &output.join("example-queue-worker.tar"), &mut written)?;
        for loader in &loaders {
            for (image, archive) in &written {
                let step = progress.step(&format!("load {}", image.name()), None);
                loader.load(image, archive).await?;
                step.done();
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes `image` to `archive`, says so, and notes it in `written`.
fn write(image: &Image, archive: &Path, written: &mut Vec<(Image, PathBuf)>) -> Result<Packed> {
    let packed = image.pack()?;
    packed.write(archive)?;
    println!("{}  {}  {}", archive.display(), image.name(), packed.manifest.digest());
    written.push((image.clone(), archive.to_owned()));
    Ok(packed)
}

/// Pushes an image, and the list of what is in it as a document that belongs to it.
async fn push(image: &Packed, materials: &Blob, file: &str) -> Result<()> {
    let registry = Registry::of(image.name.parse()?).await?;
    registry.push(image).await?;
    registry.attach(&image.manifest, materials, file).await
}
