//! The validating webhook: judges the result of a write to a pod, after all mutating webhooks have had their say, and holds deletes
//! and evictions of pods until everybody has let go of them. It also judges PodTransitionRules.
//!
//! | path | for | does |
//! |---|---|---|
//! | `/validate` | pods CREATE and UPDATE | denies what breaks the label protocol; warns of (under `--strict`: denies) half announcements, and labels that only Podward may write and that don't follow from what the writer may |
//! | `/delete` | pods DELETE | lets through or holds, by [`podward_core::hold`] |
//! | `/evict` | pods/eviction CREATE (policy/v1 and v1beta1) | looks the pod up, then the same |
//! | `/rules` | podtransitionrules CREATE and UPDATE | denies what can't be right, with the field; warns of what can't be meant, and of webhooks that can't be reached now |
//!
//! `/validate` judges by the tables that the engine advances by, so that no step of Podward's can be denied here. What was wrong
//! with a pod before a write is not held against the write.
//!
//! # What is held
//!
//! Whoever is held gets 429 with reason TooManyRequests, which every drainer and workload controller takes for "try again", and which
//! says who still holds the pod. Before, the wish is recorded on the pod by any replica of the lifecycle-controller
//! (gRPC `Lifecycle.RequestDeletion`), which carries it out by itself; if none can be reached the answer is 429 all the same, and
//! the caller's next try is the record. A caller that comes again, for whom the wish stands on the pod already, is answered without
//! asking anybody.
//!
//! # Guarantees
//!
//! - A pod is let through only for a reason ([`podward_core::hold::Reason`]) that was seen: an API error, an empty cache or a watch
//!   that fails is never one. "The node is gone" is always asked for.
//! - Every request is answered in the time that the API server allows (`timeoutSeconds`); nothing queues, one too many is told 429.
//! - A dry run leaves nothing behind.
#![forbid(unsafe_code)]

mod hold;
mod rules;
mod subject;
mod validate;

pub use hold::{Controller, ControllerArgs, HoldOptions, Holding, Recorder};
pub use rules::{Reading, Rules};
pub use subject::Subject;
pub use validate::Validating;

use std::time::Duration;

use podward_runtime::args::{NodeArgs, ReviewArgs, seconds};
use podward_runtime::{Setup, WebhookArgs, client, run_webhook};

/// The name of the service.
pub const SERVICE: &str = env!("CARGO_PKG_NAME");
/// Its version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Guards PodOpsLifecycle against writes that break it, and pods against being deleted while they serve.
#[derive(Clone, Debug, clap::Parser)]
#[command(version)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub webhook: WebhookArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub review: ReviewArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub hold: HoldArgs,
}

/// Arguments of holding deletes and evictions.
#[derive(Clone, Debug, clap::Args)]
pub struct HoldArgs {
    /// Hold deletes and evictions of opted-in pods; with false all are let through, and neither the API server nor the
    /// lifecycle-controller is asked anything
    #[arg(long, env = "PODWARD_HOLD", default_value_t = true, action = clap::ArgAction::Set)]
    pub hold: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub node: NodeArgs,
    /// Seconds that a delete by a person or tool waits for its pod to be let go of before it is answered, so that it may succeed;
    /// cut to what timeoutSeconds of the webhook configuration leaves
    #[arg(long, env = "PODWARD_WAIT", default_value = "0", value_parser = seconds)]
    pub wait: Duration,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub controller: ControllerArgs,
}

impl Args {
    /// The webhook that these arguments ask for, with its watches running.
    ///
    /// # Errors
    ///
    /// When there is no configuration for the API server, or the controller's URL is none.
    pub async fn hook(&self, setup: &mut Setup) -> anyhow::Result<Validating> {
        setup.also_serve(Rules::default());
        let webhook = Validating::new(self.review.policy());
        if !self.hold.hold {
            return Ok(webhook);
        }
        let client = client::connect(&self.webhook.kube, SERVICE, VERSION).await?;
        let controller = Controller::new(&self.hold.controller)?;
        let options =
            HoldOptions { unreachable_limit: self.hold.node.node_unreachable_limit, wait: self.hold.wait };
        Ok(webhook.with_holding(Holding::new(options, client, controller, setup)))
    }

    /// Serves until a signal.
    ///
    /// # Errors
    ///
    /// When logging, certificate or ports can't be set up, or what [`hook`](Self::hook) needs.
    pub fn run(self) -> anyhow::Result<()> {
        run_webhook(&self.webhook, SERVICE, VERSION, async |setup| self.hook(setup).await)
    }
}
