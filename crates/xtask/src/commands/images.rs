//! `cargo xtask images`: writes, loads and pushes container images without a container tool.

#[cfg(test)]
mod dockerfile;
mod load;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use podward_images::{Blob, DemoImages, Image, PackedImage, QueueWorkerImage, ServiceImages, workspace_dir};
use podward_testbed::Progress;

use crate::registry::{ImageName, Registry};
use crate::sbom::Materials;
use load::{ImageLoader, LoadTarget};

/// Write container images of this workspace's programs as OCI archives; load or push them.
#[derive(Debug, Args)]
pub(crate) struct Images {
    /// Folder of the archives and the software bills of materials [default: target/images]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Registry in the names of the services' images: `global.image.registry` of the chart
    #[arg(long, value_name = "HOST", default_value_t = ServiceImages::default().registry)]
    registry: String,
    /// Cargo profile of the programs
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Tag of the services' images: `global.image.tag` of the chart
    #[arg(long, default_value_t = ServiceImages::default().tag)]
    tag: String,
    /// Push the services' images to the registry, with the credentials that `docker login` stored
    #[arg(long)]
    push: bool,
    /// Load all images into the nodes of a cluster: kind, kind:NAME or bed:NAME (a cluster of `cargo xtask testbed up`)
    #[arg(long, value_name = "CLUSTER")]
    load: Vec<LoadTarget>,
}

impl Images {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let output = self.output.unwrap_or_else(|| workspace_dir().join("target/images"));
        std::fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;
        // Check the destinations before the build, which takes minutes.
        let mut loaders = Vec::new();
        for target in &self.load {
            loaders.push(ImageLoader::of(target).await?);
        }
        if self.push {
            format!("{}/podward/x:{}", self.registry, self.tag).parse::<ImageName>()?;
        }

        let progress = Progress::stderr();
        let step = progress.step("build Podward's services and the kubectl plugin", None);
        let services = ServiceImages { registry: self.registry, tag: self.tag }.build(&self.profile).await?;
        step.done();
        let names: Vec<_> = services.iter().map(|(service, _)| *service).collect();
        let materials = Materials::of(&names).await?;
        let mut written = Vec::new();
        for ((_, image), service) in services.iter().zip(&names) {
            let packed = write(image, &output.join(format!("{service}.tar")), &mut written)?;
            let file = format!("{service}.cdx.json");
            let document = materials
                .document(service)
                .with_context(|| format!("write the bill of materials of {service}"))?;
            let place = output.join(&file);
            std::fs::write(&place, document.content())
                .with_context(|| format!("cannot write {}", place.display()))?;
            if self.push {
                let step = progress.step(&format!("push {}", image.name()), None);
                push(&packed, &document, &file).await?;
                step.done();
            }
        }
        let step = progress.step("build the demo server", None);
        let demo = DemoImages::default().build(&self.profile).await?;
        step.done();
        for (image, version) in demo.iter().zip(["v1", "v2"]) {
            write(image, &output.join(format!("demo-server-{version}.tar")), &mut written)?;
        }
        let step = progress.step("build the queue worker", None);
        let worker = QueueWorkerImage::default().build(&self.profile).await?;
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

/// Writes `image` to `archive`, prints its digest, and adds it to `written`.
fn write(image: &Image, archive: &Path, written: &mut Vec<(Image, PathBuf)>) -> Result<PackedImage> {
    let packed = image.pack()?;
    packed.write(archive)?;
    println!("{}  {}  {}", archive.display(), image.name(), packed.manifest.digest());
    written.push((image.clone(), archive.to_owned()));
    Ok(packed)
}

/// Pushes an image, and its bill of materials as a referrer of the image.
async fn push(image: &PackedImage, materials: &Blob, file: &str) -> Result<()> {
    let registry = Registry::of(image.name.parse()?).await?;
    registry.push(image).await?;
    registry.attach(&image.manifest, materials, file).await
}
