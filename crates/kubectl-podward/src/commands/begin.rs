//! `kubectl podward begin`: an operation on a pod, and a command that is run while it is permitted.

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use jiff::Timestamp;
use kube::Client;
use podward_core::keys::Stage;
use podward_core::{Operations, Pod};
use podward_runtime::args::seconds;
use serde_json::{Value, json};
use tokio::process::Command;

use super::cancel;
use super::finish;
use crate::operation::{Goal, PodClient, PodPlace};

/// The exit code of a command that is interrupted, as shells report it.
const INTERRUPTED: u8 = 130;

/// Begin an operation on a pod: Podward takes it out of service
///
/// Announces the operation with the labels of the protocol. With --wait, waits until the pod is out of service and the
/// operation is permitted. With a command, also runs it then, and finishes the operation afterwards: the pod goes back into
/// service. If the command fails, the operation is cancelled. If the permission does not come in time, or the command line
/// is interrupted, it is cancelled, too.
///
/// Exit code: 0 if everything succeeded; that of the command if it failed; 1 for other failures; 130 if interrupted.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward begin web-0 --type restart --wait -- kubectl exec web-0 -- nginx -s reload\n  kubectl podward begin web-0 --type debug --wait\n  kubectl podward finish web-0"
)]
pub(crate) struct Begin {
    #[command(flatten)]
    place: PodPlace,
    /// The type of the operation: rules and hooks may depend on it
    #[arg(long = "type", value_name = "TYPE", default_value = "restart")]
    operation_type: String,
    /// The id of the operation, unique on the pod
    #[arg(long, default_value = "kubectl")]
    id: String,
    /// Wait for the permission
    #[arg(long)]
    wait: bool,
    /// The longest wait for the permission, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "3600")]
    timeout: Duration,
    /// The command to run while the operation is permitted
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Begin {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let pod = PodClient::new(client, &self.place);
        pod.write(|pod| self.announcement(pod)).await?;
        eprintln!("operation {} ({}) of pod {} has begun", self.id, self.operation_type, pod.full_name());
        if !self.wait && self.command.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let goal = Goal::Permitted(self.id.clone());
        let permitted = tokio::select! {
            permitted = pod.wait(&goal, self.timeout) => permitted,
            _ = tokio::signal::ctrl_c() => {
                cancel::cancel(&pod, &self.id).await?;
                return Ok(ExitCode::from(INTERRUPTED));
            }
        };
        match permitted {
            Ok(waited) => println!("{}", waited.0),
            Err(error) => {
                // Nobody is left who would finish it.
                return Err(match cancel::cancel(&pod, &self.id).await {
                    Ok(()) => error,
                    Err(also) => error.context(format!("the operation is not cancelled ({also:#})")),
                });
            }
        }
        match self.command.split_first() {
            Some((program, arguments)) => self.work(&pod, program, arguments).await,
            None => Ok(ExitCode::SUCCESS),
        }
    }

    /// Returns the labels that announce the operation, or `None` if it is announced already.
    fn announcement(&self, pod: &Pod) -> Result<Option<Value>> {
        let operations = Operations::parse(pod.view().labels);
        if let Some(operation) = operations.get(&self.id).filter(|operation| operation.is_live()) {
            let other = operation.known_type().unwrap_or_default().to_owned();
            ensure!(
                other == self.operation_type && !operation.has(Stage::Operated),
                "the pod has an operation {} ({other}) already: choose another --id, or wait until it has ended",
                self.id
            );
            return Ok(None);
        }
        let labels = json!({
            Stage::Operating.key(&self.id): Timestamp::now().as_nanosecond().to_string(),
            Stage::OperationType.key(&self.id): self.operation_type,
        });
        Ok(Some(json!({"labels": labels})))
    }

    async fn work(&self, pod: &PodClient, program: &str, arguments: &[String]) -> Result<ExitCode> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::inherit()).kill_on_drop(true);
        // The terminal interrupts the command, too, which then fails.
        let ended = command.status().await.with_context(|| format!("run {program}"));
        let succeeded = ended.as_ref().is_ok_and(std::process::ExitStatus::success);
        if succeeded {
            finish::finish(pod, &self.id).await?;
            println!("operation {} of pod {} is finished", self.id, pod.full_name());
            return Ok(ExitCode::SUCCESS);
        }
        cancel::cancel(pod, &self.id).await?;
        let code = ended?.code().and_then(|code| u8::try_from(code).ok());
        Ok(ExitCode::from(code.unwrap_or(INTERRUPTED)))
    }
}
