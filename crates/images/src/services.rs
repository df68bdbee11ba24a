//! The release images: Podward's services and the plugin of kubectl.

mod authorities;
mod metadata;

use anyhow::{Context, Result};

use crate::build::build_for_images;
use crate::image::Image;
use metadata::CommonMetadata;

/// The registry and tag of the release images. Their names are those in the Helm chart.
#[derive(Clone, Debug)]
pub struct ServiceImages {
    /// The registry, `global.image.registry` of the chart.
    pub registry: String,
    /// The tag, `global.image.tag` of the chart.
    pub tag: String,
}

impl Default for ServiceImages {
    fn default() -> Self {
        Self { registry: "podward.local".to_owned(), tag: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

impl ServiceImages {
    /// The programs that have an image: the services, and the plugin of kubectl, which jobs of the chart run.
    pub const PROGRAMS: [&str; 8] = [
        "mutating-webhook",
        "validating-webhook",
        "lifecycle-controller",
        "traffic-controller",
        "service-discovery-bridge",
        "cloneset-controller",
        "node-agent",
        "kubectl-podward",
    ];

    /// Builds the programs in the cargo profile `profile`, each as one static file, and returns the name of each
    /// program with its image.
    ///
    /// # Errors
    /// Fails if the programs cannot be built.
    pub async fn build(&self, profile: &str) -> Result<Vec<(&'static str, Image)>> {
        let names = Self::PROGRAMS;
        let programs = build_for_images(&names, profile).await.context("build Podward's services")?;
        let metadata = CommonMetadata::of_workspace().await?;
        let image = |name: &'static str| {
            let program = programs.path(name).with_context(|| format!("find the program {name}"))?;
            let path = format!("/{name}");
            let image = metadata
                .image(format!("{}/podward/{name}:{}", self.registry, self.tag), name)
                .file(program, &path, 0o755)
                .entrypoint([&*path]);
            Ok((name, image))
        };
        names.into_iter().map(image).collect()
    }
}
