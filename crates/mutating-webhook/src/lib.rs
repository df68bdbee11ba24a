//! The mutating webhook. Within the caller's own write, it takes every step of the label protocol that the pod's state
//! allows.
//!
//! ```text
//!  API server ──► /mutate, /inject ──► mutate ──► podward_core: on_create, on_update, review ──► JSON patch, warnings
//!  watches of LifecycleHooks, namespaces ──► consumer_hooks ──┘
//! ```
//!
//! The API server puts a secret before each path ([`podward_runtime::secret_path`]).
//!
//! | path | for | does |
//! |---|---|---|
//! | `/mutate` | pods CREATE | adds the readiness gate, and the expected finalizers of the hooks that will be consumers |
//! | `/mutate` | pods and pods/status UPDATE | [`advance`](podward_core::advance) |
//! | `/inject` | pods CREATE in namespaces labelled `podward.io/inject: enabled` | the same, and adds the opt-in label |
//!
//! # Guarantees
//!
//! - The webhook only saves time. When it is down, the lifecycle-controller takes the same steps with the same
//!   function, later. The controller also adds consumers that the webhook does not know. A pod never waits for the
//!   webhook.
//! - It has no state except its watches, and no side effects. A dry run gets the same answer.
//! - It patches only keys of Podward, and with `--drop-managed-fields` the managed fields of new pods.
//! - It warns about incomplete operations and about keys that the writer may not write. With `--strict` it denies them.
//! - It never fails a write because of an error that the pod had before.
#![forbid(unsafe_code)]

mod consumer_hooks;
mod mutate;

pub use consumer_hooks::ConsumerHooks;
pub use mutate::MutatingWebhook;

use podward_runtime::args::ReviewArgs;
use podward_runtime::{WebhookArgs, WebhookSetup, client, run_webhook};

/// The name of the service.
pub const SERVICE: &str = env!("CARGO_PKG_NAME");
/// Its version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Advances the PodOpsLifecycle protocol of pods within the writes of its users
#[derive(Clone, Debug, clap::Parser)]
#[command(version)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub webhook: WebhookArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub review: ReviewArgs,
    /// Remove metadata.managedFields of new pods that are opted in, unless they were made by server-side apply. The API
    /// server then does not track who changes which of their fields, which saves a part of its work
    #[arg(long)]
    pub drop_managed_fields: bool,
}

impl Args {
    /// Returns the webhook, and starts its watches.
    ///
    /// # Errors
    ///
    /// Fails if there is no configuration for the API server.
    pub async fn hook(&self, setup: &mut WebhookSetup) -> anyhow::Result<MutatingWebhook> {
        let client = client::connect(&self.webhook.kube, SERVICE, VERSION).await?;
        let hook = MutatingWebhook::new(self.review.policy(), ConsumerHooks::follow(&client, setup));
        Ok(hook.drop_managed_fields(self.drop_managed_fields))
    }

    /// Serves until the process receives SIGTERM or SIGINT.
    ///
    /// # Errors
    ///
    /// Fails if logging, the certificate or the ports cannot be set up, or if there is no configuration for the API
    /// server.
    pub fn run(self) -> anyhow::Result<()> {
        run_webhook(&self.webhook, SERVICE, VERSION, async |setup| self.hook(setup).await)
    }
}
