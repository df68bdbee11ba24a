//! `kubectl podward begin`: an operation on a pod, and a command that is run while it is permitted.

mod command;
mod signals;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anstyle::Style;
use anyhow::{Context, Error, Result, anyhow, ensure};
use clap::Args;
use jiff::Timestamp;
use kube::Client;
use podward_core::keys::Stage;
use podward_core::{Operations, Pod};
use serde_json::{Value, json};

use super::cancel;
use super::finish;
use crate::api::{is_not_found, is_transient};
use crate::duration::duration;
use crate::operation::{Begun, Goal, PodClient, PodPlace};
use crate::terminal::{print, tell};
use command::CommandEnd;
use signals::{Interruption, Interruptions, Signals};

/// Begin an operation on a pod: Podward takes it out of service
///
/// Announces the operation with the labels of the protocol. With --wait, waits until the pod is out of service and the
/// operation is permitted. With a command, also runs it then, and finishes the operation afterwards: the pod goes back into
/// service. If the command fails, the operation is cancelled. If the permission does not come in time, the command line is
/// interrupted (Ctrl-C, SIGTERM, SIGHUP), or its standard output is closed before the command runs, it is cancelled, too.
///
/// A write that announces the operation, and requests that end it, are repeated for a minute if they fail for a reason that
/// passes. After that, the operation goes on, and the standard error names the command that ends it.
///
/// If the pod has an operation with this id and type already, --wait waits for its permission, and never cancels it. A
/// command is not run then: it would work together with whoever has begun the operation. Choose another --id.
///
/// Exit code: 0 if everything succeeded; that of the command if it failed, 128 + N if signal N has ended it; 1 for other
/// failures; 130 if interrupted, 143 after SIGTERM, 129 after SIGHUP.
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
    /// The longest wait for the permission: seconds, or a time such as 5m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "3600")]
    timeout: Duration,
    /// The command to run while the operation is permitted
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What becomes of an announcement.
#[derive(Debug, Default)]
struct Sending {
    has_sent: Cell<bool>,
    /// Nothing is sent any more.
    is_over: Cell<bool>,
}

impl Begin {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        // A signal between the announcement and the wait must not be lost.
        let mut signals = Signals::listen()?;
        self.run_until(client, &mut signals).await
    }

    async fn run_until(self, client: Client, interruptions: &mut impl Interruptions) -> Result<ExitCode> {
        let mut pod = PodClient::new(client, &self.place);
        let (announced, interruption) = self.announce_until(&pod, interruptions).await;
        pod.insist();
        if let Some(interruption) = interruption {
            match announced {
                Ok((begun, is_ours)) => self.give_up(&pod, &begun, is_ours).await,
                Err(error) => tell(&format!("{error:#}")),
            }
            return Ok(ExitCode::from(interruption.exit_code()));
        }
        let (begun, is_ours) = announced?;
        let began = if is_ours { "has begun" } else { "goes on already" };
        tell(&format!("operation {} ({}) of pod {} {began}", self.id, self.operation_type, pod.full_name()));
        if !self.wait && self.command.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let goal = Goal::Permitted(self.id.clone());
        let permitted = tokio::select! {
            permitted = pod.wait(&goal, Some(&begun), self.timeout) => permitted,
            interruption = interruptions.next() => {
                self.give_up(&pod, &begun, is_ours).await;
                return Ok(ExitCode::from(interruption.exit_code()));
            }
        };
        let printed = permitted.and_then(|waited| {
            let text = format!("{}\n", waited.0);
            print(&text, |_, _| Style::new()).context("print that the operation is permitted")
        });
        if let Err(error) = printed {
            if !is_ours {
                return Err(error.context(self.not_ours(&pod)));
            }
            // Nobody is left who would finish it.
            self.undo(&pod, &begun).await;
            return Err(error);
        }
        match self.command.split_first() {
            Some((program, arguments)) => self.work(&pod, &begun, program, arguments, interruptions).await,
            None => Ok(ExitCode::SUCCESS),
        }
    }

    /// Announces the operation as [`announce`](Self::announce) does. An interruption that comes first is returned as well:
    /// nothing is sent after it, but what was sent before may be stored, so that the answer is waited for.
    async fn announce_until(
        &self,
        pod: &PodClient,
        interruptions: &mut impl Interruptions,
    ) -> (Result<(Begun, bool)>, Option<Interruption>) {
        let sending = Sending::default();
        let mut announcing = pin!(self.announce(pod, &sending));
        let interruption = tokio::select! {
            biased;
            announced = &mut announcing => return (announced, None),
            interruption = interruptions.next() => interruption,
        };
        sending.is_over.set(true);
        let announced =
            if sending.has_sent.get() { announcing.await } else { Err(self.not_begun(&pod.full_name())) };
        (announced, Some(interruption))
    }

    /// Announces the operation. Returns it, and false if it goes on already: then somebody else ends it.
    async fn announce(&self, pod: &PodClient, sending: &Sending) -> Result<(Begun, bool)> {
        let at = Timestamp::now().as_nanosecond().to_string();
        let announced = pod
            .write(|found, _| {
                let labels = self.announcement(found, &at, &pod.full_name())?;
                if labels.is_some() {
                    ensure!(!sending.is_over.get(), self.not_begun(&pod.full_name()));
                    sending.has_sent.set(true);
                }
                Ok(labels)
            })
            .await;
        let pod = announced.map_err(|error| match sending.has_sent.get() && is_transient(&error) {
            true => error.context(self.end_with(pod, "cancel", "may have begun")),
            false => error,
        })?;
        let begun = Begun::of(&pod, &self.id);
        let is_ours = begun.is_at(&at);
        Ok((begun, is_ours))
    }

    /// Returns the labels that announce the operation, or `None` if it is announced already. `at` is the value of its label
    /// in this announcement.
    ///
    /// # Errors
    /// When the pod has another operation with this id, or a command would join one that somebody else ends.
    fn announcement(&self, pod: &Pod, at: &str, name: &str) -> Result<Option<Value>> {
        let operations = Operations::parse(pod.view().labels);
        if let Some(operation) = operations.get(&self.id).filter(|operation| operation.is_live()) {
            // The answer to an earlier write is missing.
            if Begun::of(pod, &self.id).is_at(at) {
                return Ok(None);
            }
            let other = operation.known_type().unwrap_or_default().to_owned();
            ensure!(
                self.command.is_empty() && other == self.operation_type && !operation.has(Stage::Operated),
                "pod {name} has an operation {} ({other}) already: choose another --id, or wait until it has ended",
                self.id
            );
            return Ok(None);
        }
        let labels = json!({
            Stage::Operating.key(&self.id): at,
            Stage::OperationType.key(&self.id): self.operation_type,
        });
        Ok(Some(json!({"labels": labels})))
    }

    /// Runs the command, and ends the operation.
    async fn work(
        &self,
        pod: &PodClient,
        begun: &Begun,
        program: &str,
        arguments: &[String],
        interruptions: &mut impl Interruptions,
    ) -> Result<ExitCode> {
        let ended = command::run(program, arguments, interruptions).await;
        if ended.as_ref().is_ok_and(CommandEnd::is_success) {
            let finished = finish::finish(pod, &self.id, Some(begun)).await;
            finished.map_err(|error| self.not_ended(pod, "finish", error))?;
            return Ok(ExitCode::SUCCESS);
        }
        self.undo(pod, begun).await;
        Ok(ExitCode::from(ended?.exit_code()))
    }

    /// Cancels the operation, unless somebody else has begun it.
    async fn give_up(&self, pod: &PodClient, begun: &Begun, is_ours: bool) {
        if is_ours {
            self.undo(pod, begun).await;
        } else {
            tell(&self.not_ours(pod));
        }
    }

    fn not_ours(&self, pod: &PodClient) -> String {
        format!("operation {} of pod {} is not cancelled: it had begun before", self.id, pod.full_name())
    }

    fn not_begun(&self, name: &str) -> Error {
        anyhow!("operation {} of pod {name} has not begun: the command line was interrupted", self.id)
    }

    /// Cancels the operation. If that fails, tells why.
    async fn undo(&self, pod: &PodClient, begun: &Begun) {
        if let Err(error) = cancel::cancel(pod, &self.id, Some(begun)).await {
            tell(&format!("{:#}", self.not_ended(pod, "cancel", error)));
        }
    }

    /// Adds to the error of a request how to end the operation.
    fn not_ended(&self, pod: &PodClient, command: &str, error: Error) -> Error {
        let of_request = error.is::<kube::Error>() || is_transient(&error);
        if !of_request || is_not_found(&error) {
            // It has ended already.
            return error;
        }
        error.context(self.end_with(pod, command, "goes on"))
    }

    fn end_with(&self, pod: &PodClient, command: &str, state: &str) -> String {
        format!(
            "operation {0} of pod {1} {state}; to end it: kubectl podward {command} {2} -n {3} --id {0}",
            self.id,
            pod.full_name(),
            pod.name(),
            pod.namespace()
        )
    }
}
