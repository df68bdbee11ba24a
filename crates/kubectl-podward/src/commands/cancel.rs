//! `kubectl podward cancel`: an operation is undone.

use std::cell::OnceCell;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use kube::Client;
use podward_core::Operations;
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

/// Writes the label that cancels the operation. Its value is the type of the operation. The operation has to be `begun`, or
/// else the one that is seen first: what begins while the request is repeated belongs to somebody else.
pub(super) async fn cancel(pod: &PodClient, id: &str, begun: Option<&Begun>) -> Result<()> {
    let seen = OnceCell::new();
    pod.write(|found, unsure| {
        let begun = begun.unwrap_or_else(|| seen.get_or_init(|| Begun::of(found, id)));
        begun.is_on(found, &pod.full_name())?;
        let operations = Operations::parse(found.view().labels);
        let operation = operations.get(id).filter(|operation| operation.is_live());
        let Some(of) = operation.and_then(|_| operations.type_of(id)) else {
            // The write whose answer is missing has cancelled it.
            ensure!(unsure, "pod {} has no operation {id}", pod.full_name());
            return Ok(None);
        };
        Ok(Some(json!({"labels": {Stage::UndoOperationType.key(id): of}})))
    })
    .await?;
    say(&format!("operation {id} of pod {} is cancelled", pod.full_name()));
    Ok(())
}
