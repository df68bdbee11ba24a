//! `kubectl podward break-glass`: a pod that may be deleted at once, on record.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use kube::Client;
use podward_core::keys::BREAK_GLASS;
use serde_json::json;

use crate::operation::{PodClient, PodPlace};

/// Allow a pod to be deleted at once, although traffic sources still use it
///
/// Requests that are sent to the pod are lost. The reason is stored on the pod, and an event says who has given it. The pod
/// is not deleted by this command: delete or evict it afterwards. Needs the right to use the verb break-glass on pods of
/// podward.io.
///
/// Exit code: 0 if the pod was written; 1 otherwise.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  kubectl podward break-glass web-0 --reason 'INC-1234: node is on fire' && kubectl delete pod web-0"
)]
pub(crate) struct BreakGlass {
    #[command(flatten)]
    place: PodPlace,
    /// Why, for those who ask later
    #[arg(long)]
    reason: String,
}

impl BreakGlass {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        ensure!(!self.reason.trim().is_empty(), "the reason is empty: say why, for those who ask later");
        let pod = PodClient::new(client, &self.place);
        let metadata = json!({"annotations": {BREAK_GLASS: self.reason}});
        pod.write(|_, _| Ok(Some(metadata.clone()))).await?;
        println!(
            "pod {} may be deleted at once, and requests to it are lost then: kubectl delete pod {} -n {}",
            pod.full_name(),
            self.place.pod,
            pod.namespace()
        );
        Ok(ExitCode::SUCCESS)
    }
}
