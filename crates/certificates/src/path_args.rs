//! Command-line arguments for the secret in the paths of the webhooks.

use std::time::Duration;

use podward_core::webhook_path::RotationTimes;

use crate::args::whole_seconds;

/// Arguments for the secret in the paths of the webhooks.
#[derive(Clone, Debug, clap::Args)]
pub struct WebhookPathArgs {
    /// Create and rotate the secret in the paths of the webhooks, in the Secret podward-webhook-path, and write the
    /// paths to the webhook configurations
    #[arg(long, env = "PODWARD_WEBHOOK_PATHS", default_value_t = false, action = clap::ArgAction::Set)]
    pub webhook_paths: bool,
    /// Seconds after which the secret in the paths is replaced
    #[arg(long, env = "PODWARD_WEBHOOK_PATH_ROTATION", default_value = "86400", value_parser = whole_seconds)]
    pub webhook_path_rotation: Duration,
    /// Seconds for which a new secret is accepted before it is used, and an old one after it was last used
    #[arg(long, env = "PODWARD_WEBHOOK_PATH_OVERLAP", default_value = "600", value_parser = whole_seconds)]
    pub webhook_path_overlap: Duration,
}

impl WebhookPathArgs {
    /// Returns the times of the rotation.
    ///
    /// # Errors
    /// Fails if the overlap is shorter than a second, or the rotation is shorter than three times the overlap.
    pub fn times(&self) -> anyhow::Result<RotationTimes> {
        let times =
            RotationTimes { interval: self.webhook_path_rotation, overlap: self.webhook_path_overlap };
        anyhow::ensure!(
            times.overlap >= Duration::from_secs(1),
            "--webhook-path-overlap must be at least 1 s"
        );
        anyhow::ensure!(
            times.interval >= times.overlap * 3,
            "--webhook-path-rotation must be at least three times --webhook-path-overlap: the next secret is accepted \
             for the overlap before it is used, and the previous one after that"
        );
        Ok(times)
    }
}
