//! The mutating webhook: takes every step of the label protocol that a pod's state allows within the caller's own write.
//!
//! | path | for | does |
//! |---|---|---|
//! | `/mutate` | pods CREATE | adds the readiness gate, and the hooks that will hold the pod to its expected finalizers |
//! | `/mutate` | pods and pods/status UPDATE | [`advance`](podward_core::advance) |
//! | `/inject` | pods CREATE in namespaces labelled `podward.io/inject: enabled` | the same, and the opt-in label |
//!
//! It is a fast path: with it down, the lifecycle-controller takes the same steps by the same function, only later. It keeps no
//! state but what it watches (LifecycleHooks, labels of namespaces), and has no side effects, so a dry run gets the same answer.
//! What it doesn't know of hooks the controller adds later: a pod is never kept waiting for it. It patches only keys of Podward, and warns of writes that are
//! half done or not the writer's to make (under `--strict` it denies them). It never fails a write for what was wrong with the
//! pod before.
#![forbid(unsafe_code)]

mod consumers;
mod mutate;

pub use consumers::Consumers;
pub use mutate::Mutating;

use podward_runtime::args::ReviewArgs;
use podward_runtime::{Setup, WebhookArgs, client, run_webhook};

/// The name of the service.
pub const SERVICE: &str = env!("CARGO_PKG_NAME");
/// Its version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Advances PodOpsLifecycle within the writes of those who use it.
#[derive(Clone, Debug, clap::Parser)]
#[command(version)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub webhook: WebhookArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub review: ReviewArgs,
}

impl Args {
    /// The webhook that these arguments ask for, with its watches running.
    ///
    /// # Errors
    ///
    /// When there is no configuration for the API server.
    pub async fn hook(&self, setup: &mut Setup) -> anyhow::Result<Mutating> {
        let client = client::connect(&self.webhook.kube, SERVICE, VERSION).await?;
        Ok(Mutating::new(self.review.policy(), Consumers::follow(&client, setup)))
    }

    /// Serves until a signal.
    ///
    /// # Errors
    ///
    /// When logging, certificate or ports can't be set up, or there is no configuration for the API server.
    pub fn run(self) -> anyhow::Result<()> {
        run_webhook(&self.webhook, SERVICE, VERSION, async |setup| self.hook(setup).await)
    }
}
