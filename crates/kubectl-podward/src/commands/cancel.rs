//! `kubectl podward cancel`: an operation is undone.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kube::Client;
use podward_core::keys::Stage;
use serde_json::json;

use crate::operation::{Begun, PodClient, PodPlace};
use crate::terminal::say;

/// Cancel an operation: the pod goes back into service as it is
///
/// A deletion request is an operation, too: its id is pod-delete.
///
/// Exit code: 0 if the operation is cancelled; 1 if there is none, or it cannot be cancelled.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward cancel web-0\n  kubectl podward cancel web-0 --id pod-delete"
)]
pub(crate) struct Cancel {
    #[command(flatten)]
    place: PodPlace,
    /// The id of the operation
    #[arg(long, default_value = "kubectl")]
    id: String,
}

impl Cancel {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let pod = PodClient::new(client, &self.place);
        cancel(&pod, &self.id, None).await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the label that cancels the operation. Its value is the type of the operation. It has to be `begun`, if that is
/// given.
pub(super) async fn cancel(pod: &PodClient, id: &str, begun: Option<&Begun>) -> Result<()> {
    pod.end(id, begun, |operations, _| {
        let of = operations.type_of(id)?;
        Some(Some(json!({Stage::UndoOperationType.key(id): of})))
    })
    .await?;
    say(&format!("operation {id} of pod {} is cancelled", pod.full_name()));
    Ok(())
}
