//! Images of the demo server with its client, of the queue worker, and of Podward's services and plugin.

use std::path::PathBuf;

use anyhow::{Context, Result};
use podward_testbed::{Image, Programs, build_for_images};

use crate::Kind;

mod about;
mod authorities;

use about::About;

/// The two versions between which the demo and the tests update, by their names in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoImages {
    /// What pods are made with.
    pub v1: String,
    /// What they are updated to.
    pub v2: String,
}

impl Default for DemoImages {
    /// The names that [`build`](Self::build) gives, or those in `PODWARD_DEMO_V1` and `PODWARD_DEMO_V2`.
    fn default() -> Self {
        let name = |variable: &str, otherwise: &str| {
            std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned())
        };
        Self {
            v1: name("PODWARD_DEMO_V1", "podward.local/demo-server:v1"),
            v2: name("PODWARD_DEMO_V2", "podward.local/demo-server:v2"),
        }
    }
}

impl DemoImages {
    /// Builds the demo server and its client in the cargo profile `profile` and describes an image of both for each version. The
    /// versions differ in their layer, so that a cluster sees two images by whatever it tells images apart.
    ///
    /// # Errors
    /// When they can't be built.
    pub async fn build(&self, profile: &str) -> Result<[Image; 2]> {
        let programs = Self::programs(profile).await?;
        let (server, client) = (programs.path("demo-server")?, programs.path("demo-client")?);
        let image = |name: &str, version: &str| {
            Image::new(name)
                .file(&server, "/demo-server", 0o755)
                .file(&client, Self::CLIENT, 0o755)
                .text("/etc/demo-server-version", version)
                .entrypoint(["/demo-server"])
                .env("VERSION", version)
                .user("65532:65532")
        };
        Ok([image(&self.v1, "v1"), image(&self.v2, "v2")])
    }

    /// Where the client is in the images.
    pub(crate) const CLIENT: &str = "/demo-client";

    /// Builds the client in the cargo profile `profile`, and tells where it is.
    ///
    /// # Errors
    /// When it can't be built.
    pub async fn client(profile: &str) -> Result<PathBuf> {
        Ok(Self::programs(profile).await?.path("demo-client")?)
    }

    async fn programs(profile: &str) -> Result<Programs> {
        let built = build_for_images(&["demo-server", "demo-client"], profile).await;
        built.context("build the demo's server and client")
    }

    /// How to bring the images to the nodes of a cluster that isn't a bed.
    #[must_use]
    pub fn how_to_load(&self) -> String {
        format!(
            "the nodes need the images {} and {}: `cargo xtask images --load kind` brings them to a cluster of kind, \
             and writes them to target/images; load demo-server-v1.tar and -v2.tar with `k3d image import` or \
             `ctr -n k8s.io images import`, or push them to a registry and set PODWARD_DEMO_V1 and PODWARD_DEMO_V2 to their names",
            self.v1, self.v2
        )
    }
}

/// The image of `deploy/examples/queue-worker-rust`, by its name in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerImage {
    /// Its name.
    pub name: String,
}

impl Default for WorkerImage {
    /// The name that [`build`](Self::build) gives, or that in `PODWARD_QUEUE_WORKER`.
    fn default() -> Self {
        let name = std::env::var("PODWARD_QUEUE_WORKER");
        Self { name: name.unwrap_or_else(|_| "podward.local/example-queue-worker:dev".to_owned()) }
    }
}

impl WorkerImage {
    /// Builds the program in the cargo profile `profile`, and describes an image of it.
    ///
    /// # Errors
    /// When it can't be built.
    pub async fn build(&self, profile: &str) -> Result<Image> {
        const PROGRAM: &str = "example-queue-worker";
        let programs = build_for_images(&[PROGRAM], profile).await.context("build the queue worker")?;
        let image = Image::new(&self.name)
            .file(programs.path(PROGRAM)?, "/example-queue-worker", 0o755)
            .entrypoint(["/example-queue-worker"]);
        Ok(image.user("65532:65532"))
    }
}

/// The images of Podward's services and of kubectl's plugin, named as the Helm chart names them.
#[derive(Clone, Debug)]
pub struct ServiceImages {
    /// `global.image.registry` of the chart.
    pub registry: String,
    /// `global.image.tag`.
    pub tag: String,
}

impl Default for ServiceImages {
    fn default() -> Self {
        Self { registry: "podward.local".to_owned(), tag: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

impl ServiceImages {
    /// Builds the services and kubectl's plugin in the cargo profile `profile`, each as one static program, and describes an image of
    /// each, by the program's name.
    ///
    /// # Errors
    /// When they can't be built.
    pub async fn build(&self, profile: &str) -> Result<Vec<(&'static str, Image)>> {
        let names = Self::programs();
        let programs = build_for_images(&names, profile).await.context("build Podward's services")?;
        let about = About::this().await?;
        let image = |name: &'static str| {
            let program = programs.path(name).with_context(|| format!("find the program {name}"))?;
            let place = format!("/{name}");
            let image = about
                .image(format!("{}/podward/{name}:{}", self.registry, self.tag), name)
                .file(program, &place, 0o755)
                .entrypoint([&*place]);
            Ok((name, image))
        };
        names.iter().copied().map(image).collect()
    }

    /// The programs that have an image: the services, and the plugin, which the chart's jobs run.
    #[must_use]
    pub fn programs() -> Vec<&'static str> {
        Kind::ALL.into_iter().map(Kind::as_str).chain(["kubectl-podward"]).collect()
    }
}
