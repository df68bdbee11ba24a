//! `kubectl podward finish`: the work of an operation is done.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kube::Client;
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

/// Removes the labels with which the operation was announced. It has to be `begun`, if that is given.
pub(super) async fn finish(pod: &PodClient, id: &str, begun: Option<&Begun>) -> Result<()> {
    let (operating, operation_type) = (Stage::Operating.key(id), Stage::OperationType.key(id));
    pod.end(id, begun, |_, operation| {
        let is_announced = operation.has(Stage::Operating);
        Some(is_announced.then(|| json!({&operating: Value::Null, &operation_type: Value::Null})))
    })
    .await?;
    say(&format!("operation {id} of pod {} is finished", pod.full_name()));
    Ok(())
}
