//! `cargo xtask release`: publishes images and the chart, signed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use podward_images::{PackedImage, ServiceImages, workspace_dir};
use podward_testbed::{Part, Progress, Tools};
use serde_json::Value;
use tokio::process::Command;

use crate::registry::{ImageName, Registry};
use crate::sbom::Materials;
use crate::signing_key::SigningKey;

/// Build and publish the services' images and the Helm chart, each signed, with bills of materials.
///
/// The images are those of this machine's architecture. Under their tag there is an index: run the command on an amd64
/// machine, and then with --no-chart on an arm64 machine, and the index has both. The credentials are those that `docker
/// login` stored. The release can be checked with cosign, see docs/guides/images.md.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Registry: `global.image.registry` of the chart; the chart is at oci://HOST/podward/charts/podward
    #[arg(long, value_name = "HOST")]
    registry: String,
    /// File with the private key that signs: a P-256 key, PEM, not encrypted
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Tag of the images [default: the version]
    #[arg(long, default_value_t = ServiceImages::default().tag)]
    tag: String,
    /// Cargo profile of the programs
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Publish the images only: the chart was published on a machine of another architecture
    #[arg(long)]
    no_chart: bool,
}

impl Release {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        // What can be wrong is checked before the build, which takes minutes.
        let key = SigningKey::read(&self.key)?;
        let chart = format!("{}/podward/charts/podward:{}", self.registry, ServiceImages::default().tag);
        let chart: ImageName = chart.parse()?;
        let progress = Progress::stderr();
        let helm = match self.no_chart {
            true => None,
            false => Some(Tools::ensure(&[Part::Helm], &progress).await?.bin("helm")),
        };

        let step = progress.step("build Podward's services and the kubectl plugin", None);
        let images = ServiceImages { registry: self.registry, tag: self.tag };
        let services = images.build(&self.profile).await?;
        step.done();
        let names: Vec<_> = services.iter().map(|(service, _)| *service).collect();
        let materials = Materials::of(&names).await?;
        for (service, image) in &services {
            let step = progress.step(&format!("publish {}", image.name()), None);
            publish(service, &image.pack()?, &materials, &key).await?;
            step.done();
        }
        if let Some(helm) = helm {
            let step = progress.step(&format!("publish {chart}"), None);
            publish_chart(&helm, chart, &key).await?;
            step.done();
        }
        eprintln!("next, the kubectl plugin: cargo xtask plugin --url https://HOST/PATH");
        Ok(ExitCode::SUCCESS)
    }
}

/// Publishes an image, its bill of materials and the signature of its index, and prints the index.
async fn publish(service: &str, image: &PackedImage, materials: &Materials, key: &SigningKey) -> Result<()> {
    let document = materials.document(service);
    let document = document.with_context(|| format!("write the bill of materials of {service}"))?;
    let registry = Registry::of(image.name.parse()?).await?;
    let index = registry.push_to_index(image).await?;
    registry.attach(&image.manifest, &document, &format!("{service}.cdx.json")).await?;
    registry.sign(&index, key).await?;
    println!("{}@{}", image.name, index.digest());
    Ok(())
}

/// Packages and publishes the chart and its signature, and prints its manifest.
async fn publish_chart(helm: &Path, name: ImageName, key: &SigningKey) -> Result<()> {
    let chart = workspace_dir().join("charts/podward");
    let folder = tempfile::tempdir().context("make a folder for the package")?;
    let mut package = Command::new(helm);
    package.arg("package").arg(&chart).arg("--destination").arg(folder.path());
    let output = package.output().await.context("run helm package")?;
    ensure!(output.status.success(), "package the chart: {}", String::from_utf8_lossy(&output.stderr));
    let metadata =
        std::fs::read_to_string(chart.join("Chart.yaml")).context("read the chart's Chart.yaml")?;
    let metadata: Value = serde_saphyr::from_str(&metadata).context("parse the chart's Chart.yaml")?;
    let file = folder.path().join(format!("podward-{}.tgz", name.tag()));
    let content = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    let printed = name.to_string();
    let registry = Registry::of(name).await?;
    let manifest = registry.push_chart(content, &metadata).await?;
    registry.sign(&manifest, key).await?;
    println!("{printed}@{}", manifest.digest());
    Ok(())
}
