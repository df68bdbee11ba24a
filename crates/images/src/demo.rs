//! The images of the demo server and its client.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::build::{BuiltPrograms, build_for_images};
use crate::image::Image;

/// The names of the two image versions between which the demo and the tests update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoImages {
    /// The image that pods are created with.
    pub v1: String,
    /// The image that pods are updated to.
    pub v2: String,
}

impl Default for DemoImages {
    /// Returns the names in `PODWARD_DEMO_V1` and `PODWARD_DEMO_V2`, or `podward.local/demo-server` with the tags `v1`
    /// and `v2`.
    fn default() -> Self {
        let name =
            |variable: &str, default: &str| std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        Self {
            v1: name("PODWARD_DEMO_V1", "podward.local/demo-server:v1"),
            v2: name("PODWARD_DEMO_V2", "podward.local/demo-server:v2"),
        }
    }
}

impl DemoImages {
    /// Builds the demo server and its client in the cargo profile `profile` and returns an image of both for each
    /// version. The versions differ in their layer, so that a cluster never takes them for the same image.
    ///
    /// # Errors
    /// Fails if a program cannot be built.
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

    /// The path of the client in the images.
    pub const CLIENT: &str = "/demo-client";

    /// Builds the client in the cargo profile `profile` and returns the path of the program.
    ///
    /// # Errors
    /// Fails if the client cannot be built.
    pub async fn client(profile: &str) -> Result<PathBuf> {
        Ok(Self::programs(profile).await?.path("demo-client")?)
    }

    async fn programs(profile: &str) -> Result<BuiltPrograms> {
        let built = build_for_images(&["demo-server", "demo-client"], profile).await;
        built.context("build the demo's server and client")
    }

    /// Returns instructions to load the images into a cluster that is not a test cluster.
    #[must_use]
    pub fn how_to_load(&self) -> String {
        format!(
            "the nodes need the images {} and {}: `cargo xtask images --load kind` writes them to target/images and \
             loads them into a kind cluster; load demo-server-v1.tar and -v2.tar with `k3d image import` or \
             `ctr -n k8s.io images import`, or push them to a registry and set PODWARD_DEMO_V1 and PODWARD_DEMO_V2 to \
             their names",
            self.v1, self.v2
        )
    }
}
