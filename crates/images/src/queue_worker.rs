//! The image of the example `deploy/examples/queue-worker-rust`.

use anyhow::{Context, Result};

use crate::build::build_for_images;
use crate::image::Image;

/// The name of the queue worker's image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueWorkerImage {
    /// The name with the tag.
    pub name: String,
}

impl Default for QueueWorkerImage {
    /// Returns the name in `PODWARD_QUEUE_WORKER`, or `podward.local/example-queue-worker:dev`.
    fn default() -> Self {
        let name = std::env::var("PODWARD_QUEUE_WORKER");
        Self { name: name.unwrap_or_else(|_| "podward.local/example-queue-worker:dev".to_owned()) }
    }
}

impl QueueWorkerImage {
    /// Builds the program in the cargo profile `profile` and returns an image of it.
    ///
    /// # Errors
    /// Fails if the program cannot be built.
    pub async fn build(&self, profile: &str) -> Result<Image> {
        const PROGRAM: &str = "example-queue-worker";
        let programs = build_for_images(&[PROGRAM], profile).await.context("build the queue worker")?;
        let image = Image::new(&self.name)
            .file(programs.path(PROGRAM)?, "/example-queue-worker", 0o755)
            .entrypoint(["/example-queue-worker"]);
        Ok(image.user("65532:65532"))
    }
}
