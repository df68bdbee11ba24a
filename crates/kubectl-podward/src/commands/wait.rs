//! `kubectl podward wait`: waits for a state of a pod, and tells what it waits for.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use kube::Client;

use crate::duration::duration;
use crate::operation::{GoalName, PodClient, PodPlace};
use crate::terminal::say;

/// Wait for a pod, and tell what it waits for
///
/// Exit code: 0 if the pod has reached the state; 1 if it has not in time, or cannot any more.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward wait web-0 --for available\n  kubectl podward wait web-0 --for permitted --id upgrade --timeout 10m"
)]
pub(crate) struct Wait {
    #[command(flatten)]
    place: PodPlace,
    /// The state
    #[arg(long = "for", value_enum, default_value_t = GoalName::Available)]
    goal: GoalName,
    /// The id of the operation, for the states permitted and ended
    #[arg(long, default_value = "kubectl")]
    id: String,
    /// The longest wait: seconds, or a time such as 5m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "3600")]
    timeout: Duration,
}

impl Wait {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let pod = PodClient::new(client, &self.place);
        let waited = pod.wait(&self.goal.of(&self.id), None, self.timeout).await?;
        say(&waited.0);
        Ok(ExitCode::SUCCESS)
    }
}
