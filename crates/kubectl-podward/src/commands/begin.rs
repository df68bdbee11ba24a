//! `kubectl podward begin`: an operation on a pod, and a command that is run while it is permitted.

mod command;
mod signals;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use jiff::Timestamp;
use kube::Client;
use podward_core::keys::Stage;
use podward_core::{Operations, Pod};
use podward_runtime::args::seconds;
use serde_json::{Value, json};

use super::cancel;
use super::finish;
use crate::operation::{Goal, PodClient, PodPlace};
use signals::{Interruption, Interruptions, Signals};

/// Begin an operation on a pod: Podward takes it out of service
///
/// Announces the operation with the labels of the protocol. With --wait, waits until the pod is out of service and the
/// operation is permitted. With a command, also runs it then, and finishes the operation afterwards: the pod goes back into
/// service. If the command fails, the operation is cancelled. If the permission does not come in time, or the command line
/// is interrupted (Ctrl-C, SIGTERM, SIGHUP), it is cancelled, too.
///
/// If the pod has an operation with this id and type already, --wait waits for its permission, and never cancels it. A
/// command is not run then: it would work together with whoever has begun the operation. Choose another --id.
///
/// Exit code: 0 if everything succeeded; that of the command if it failed; 1 for other failures; 130 if interrupted, 143
/// after SIGTERM, 129 after SIGHUP.
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
        // A signal between the announcement and the wait must not be lost.
        let mut signals = Signals::listen()?;
        self.run_until(client, &mut signals).await
    }

    async fn run_until(self, client: Client, interruptions: &mut impl Interruptions) -> Result<ExitCode> {
        let pod = PodClient::new(client, &self.place);
        let is_ours = self.announce(&pod).await?;
        let began = if is_ours { "has begun" } else { "goes on already" };
        eprintln!("operation {} ({}) of pod {} {began}", self.id, self.operation_type, pod.full_name());
        if !self.wait && self.command.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let goal = Goal::Permitted(self.id.clone());
        let not_ours = || {
            format!("operation {} of pod {} is not cancelled: it had begun before", self.id, pod.full_name())
        };
        let permitted = tokio::select! {
            permitted = pod.wait(&goal, self.timeout) => permitted,
            interruption = interruptions.next() => {
                if is_ours {
                    cancel::cancel(&pod, &self.id).await?;
                } else {
                    eprintln!("{}", not_ours());
                }
                return Ok(ExitCode::from(interruption.exit_code()));
            }
        };
        match permitted {
            Ok(waited) => println!("{}", waited.0),
            Err(error) if !is_ours => {
                return Err(error.context(not_ours()));
            }
            Err(error) => {
                // Nobody is left who would finish it.
                return Err(match cancel::cancel(&pod, &self.id).await {
                    Ok(()) => error,
                    Err(also) => error.context(format!("the operation is not cancelled ({also:#})")),
                });
            }
        }
        match self.command.split_first() {
            Some((program, arguments)) => self.work(&pod, program, arguments, interruptions).await,
            None => Ok(ExitCode::SUCCESS),
        }
    }

    /// Announces the operation. Returns false if it goes on already: then somebody else ends it.
    async fn announce(&self, pod: &PodClient) -> Result<bool> {
        let is_ours = Cell::new(false);
        pod.write(|found| {
            let labels = self.announcement(found, &pod.full_name())?;
            is_ours.set(labels.is_some());
            Ok(labels)
        })
        .await?;
        Ok(is_ours.get())
    }

    /// Returns the labels that announce the operation, or `None` if it is announced already.
    ///
    /// # Errors
    /// When the pod has another operation with this id, or a command would join one that somebody else ends.
    fn announcement(&self, pod: &Pod, name: &str) -> Result<Option<Value>> {
        let operations = Operations::parse(pod.view().labels);
        if let Some(operation) = operations.get(&self.id).filter(|operation| operation.is_live()) {
            let other = operation.known_type().unwrap_or_default().to_owned();
            ensure!(
                self.command.is_empty() && other == self.operation_type && !operation.has(Stage::Operated),
                "pod {name} has an operation {} ({other}) already: choose another --id, or wait until it has ended",
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

    /// Runs the command, and ends the operation.
    async fn work(
        &self,
        pod: &PodClient,
        program: &str,
        arguments: &[String],
        interruptions: &mut impl Interruptions,
    ) -> Result<ExitCode> {
        let ended = command::run(program, arguments, interruptions).await;
        if ended.as_ref().is_ok_and(|end| end.status.success()) {
            finish::finish(pod, &self.id).await?;
            println!("operation {} of pod {} is finished", self.id, pod.full_name());
            return Ok(ExitCode::SUCCESS);
        }
        cancel::cancel(pod, &self.id).await?;
        let end = ended?;
        let code = end.status.code().and_then(|code| u8::try_from(code).ok());
        let interruption = end.interruption.unwrap_or(Interruption::Interrupt);
        Ok(ExitCode::from(code.unwrap_or_else(|| interruption.exit_code())))
    }
}
