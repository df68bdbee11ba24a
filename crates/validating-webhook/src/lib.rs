//! The validating webhook: judges the result of a write to a pod, after all mutating webhooks have had their say.
//!
//! | path | for | does |
//! |---|---|---|
//! | `/validate` | pods CREATE and UPDATE | denies what breaks the label protocol; warns of (under `--strict`: denies) half announcements, and labels that only Podward may write and that don't follow from what the writer may |
//!
//! It judges by the tables that the engine advances by, so that no step of Podward's can be denied here. What was wrong with a pod
//! before a write is not held against the write. It keeps no state, has no side effects, and needs no rights in the cluster.
#![forbid(unsafe_code)]

mod validate;

pub use validate::Validating;

use podward_runtime::args::ReviewArgs;
use podward_runtime::{WebhookArgs, run_webhook};

/// The name of the service.
pub const SERVICE: &str = env!("CARGO_PKG_NAME");
/// Its version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Guards PodOpsLifecycle against writes that break it.
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
    /// The webhook that these arguments ask for.
    #[must_use]
    pub fn hook(&self) -> Validating {
        Validating::new(self.review.policy())
    }

    /// Serves until a signal.
    ///
    /// # Errors
    ///
    /// When logging, certificate or ports can't be set up.
    pub fn run(self) -> anyhow::Result<()> {
        run_webhook(&self.webhook, SERVICE, VERSION, self.hook())
    }
}
