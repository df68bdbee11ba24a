//! `kubectl podward finish`: the work of an operation is done.

use std::cell::OnceCell;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use kube::Client;
use podward_core::Operations;
use podward_core::keys::Stage;
use serde_json::{Value, json};

use crate::operation::{Begun, PodClient, PodPlace};
use crate::terminal::say;

/// Finish an operation: Podward checks the result, and puts the pod back into service
///
/// Exit code: 0 if the operation is finished or had been; 1 otherwise.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  kubectl podward finish web-0 && kubectl podward wait web-0 --for available"
)]
pub(crate) struct Finish {
    #[command(flatten)]
    place: PodPlace,
    /// The id of the operation
    #[arg(long, default_value = "kubectl")]
    id: String,
}

impl Finish {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let pod = PodClient::new(client, &self.place);
        finish(&pod, &self.id, None).await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Removes the labels with which the operation was announced. It has to be `begun`, or else the one that is seen first: what
/// begins while the request is repeated belongs to somebody else.
pub(super) async fn finish(pod: &PodClient, id: &str, begun: Option<&Begun>) -> Result<()> {
    let (operating, operation_type) = (Stage::Operating.key(id), Stage::OperationType.key(id));
    let seen = OnceCell::new();
    pod.write(|found, unsure| {
        let begun = begun.unwrap_or_else(|| seen.get_or_init(|| Begun::of(found, id)));
        begun.is_on(found, &pod.full_name())?;
        let operations = Operations::parse(found.view().labels);
        let Some(operation) = operations.get(id).filter(|operation| operation.is_live()) else {
            // The write whose answer is missing has finished it.
            ensure!(unsure, "pod {} has no operation {id}", pod.full_name());
            return Ok(None);
        };
        if !operation.has(Stage::Operating) {
            return Ok(None);
        }
        Ok(Some(json!({"labels": {&operating: Value::Null, &operation_type: Value::Null}})))
    })
    .await?;
    say(&format!("operation {id} of pod {} is finished", pod.full_name()));
    Ok(())
}
