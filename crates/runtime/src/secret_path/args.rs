//! Arguments of the secret in the paths of the webhooks.

use std::path::PathBuf;

use clap::Args;
use podward_core::webhook_path::WEBHOOK_PATH_SECRET;
use tokio_util::sync::CancellationToken;

use super::accepted::AcceptedSecrets;
use super::file::SecretFile;
use super::watch;
use crate::admin::ReadinessCondition;
use crate::args::KubeArgs;
use crate::client;

/// Arguments of the secret in the paths of the webhooks. One of the two sources is always used.
#[derive(Clone, Debug, Args)]
pub struct SecretPathArgs {
    /// Secret with the accepted secrets of webhook paths, which is watched; the lifecycle-controller writes it
    /// (--webhook-paths)
    #[arg(
        long,
        env = "PODWARD_WEBHOOK_PATH_SECRET",
        value_name = "NAME",
        default_value = WEBHOOK_PATH_SECRET,
        conflicts_with = "webhook_path_file"
    )]
    pub webhook_path_secret: String,
    /// File with one to three accepted secrets of webhook paths, one for each line (openssl rand -hex 32), for a process
    /// without access to the Secret; read again when it changes
    #[arg(long, env = "PODWARD_WEBHOOK_PATH_FILE", value_name = "FILE")]
    pub webhook_path_file: Option<PathBuf>,
}

impl SecretPathArgs {
    /// Returns the accepted secrets: those of the file, or none until the watch has read the Secret in `namespace`.
    /// Then it sets `known`. The watch ends at `stop`.
    ///
    /// # Errors
    /// Fails if the file can't be used, or there is no configuration for the API server.
    pub(crate) async fn accepted(
        &self,
        kube: &KubeArgs,
        namespace: &str,
        process: (&'static str, &'static str),
        known: ReadinessCondition,
        stop: CancellationToken,
    ) -> anyhow::Result<AcceptedSecrets> {
        if let Some(path) = &self.webhook_path_file {
            let accepted = AcceptedSecrets::of_file(SecretFile::open(path)?);
            known.set(true);
            return Ok(accepted);
        }
        let client = client::connect(kube, process.0, process.1).await?;
        let accepted = AcceptedSecrets::default();
        watch::follow(accepted.clone(), client, namespace, &self.webhook_path_secret, known, stop);
        Ok(accepted)
    }
}
