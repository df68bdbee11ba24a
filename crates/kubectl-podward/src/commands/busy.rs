//! `kubectl podward busy`: work that must not be interrupted.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use podward_core::keys::{BUSY_REASON, BUSY_UNTIL};
use serde_json::{Value, json};

use crate::duration::duration;
use crate::operation::{PodClient, PodPlace};

/// Mark a pod as busy, so that operations wait for it, or as done
///
/// Operations wait until the time has passed, at most for the limit that the platform sets.
///
/// Exit code: 0 if the pod was written; 1 otherwise.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward busy worker-0 --for 30m --reason 'restores a backup'\n  kubectl podward busy worker-0 --done",
    group = clap::ArgGroup::new("what").required(true).args(["duration", "done"])
)]
pub(crate) struct Busy {
    #[command(flatten)]
    place: PodPlace,
    /// How long from now: seconds, or a time such as 30m
    #[arg(long = "for", value_name = "TIME", value_parser = duration, requires = "reason")]
    duration: Option<Duration>,
    /// Why, for people
    #[arg(long)]
    reason: Option<String>,
    /// The work has ended
    #[arg(long, conflicts_with = "reason")]
    done: bool,
}

impl Busy {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let pod = PodClient::new(client, &self.place).once();
        let until = match self.duration {
            Some(duration) => {
                let duration = SignedDuration::try_from(duration).context("read the duration")?;
                Some((Timestamp::now() + duration).strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
            }
            None => None,
        };
        let value = |text: &Option<String>| text.clone().map_or(Value::Null, Value::String);
        let annotations = json!({BUSY_UNTIL: value(&until), BUSY_REASON: value(&self.reason)});
        pod.write(|_, _| Ok(Some(json!({"annotations": annotations})))).await?;
        match until {
            Some(until) => println!("pod {} is busy until {until}", pod.full_name()),
            None => println!("pod {} is not busy any more", pod.full_name()),
        }
        Ok(ExitCode::SUCCESS)
    }
}
