//! The validating webhook. It reviews writes to pods after all mutating webhooks, and holds deletes and evictions of
//! pods until they are drained. It also reviews PodTransitionRules.
//!
//! ```text
//!  API server ──► /validate ───────► pod_webhook ──► podward_core::review
//!             ──► /delete, /evict ─► pod_webhook ──► hold ──► podward_core::deletion::hold
//!             │                                       └──► gRPC Lifecycle.RequestDeletion
//!             ──► /rules ──────────► rule_webhook ──► podward_api
//!             ──► /bindings, /registries ─► discovery_webhook ──► podward_api, podward_discovery
//! ```
//!
//! The API server puts a secret before each path ([`podward_runtime::secret_path`]).
//!
//! | path | for | does |
//! |---|---|---|
//! | `/validate` | pods CREATE and UPDATE | denies violations of the label protocol; see below |
//! | `/delete` | pods DELETE | allows or holds the delete, as [`podward_core::deletion::hold`] decides |
//! | `/evict` | pods/eviction CREATE (policy/v1 and v1beta1) | reads the pod, then the same |
//! | `/rules` | podtransitionrules CREATE and UPDATE | denies invalid rules with the field; warns about suspicious rules |
//! | `/bindings`, `/registries` | discoverybindings, clusterregistries CREATE and UPDATE | denies invalid ones with the field, and Secrets that the writer may not read |
//!
//! `/validate` warns about incomplete operations, and about labels that only Podward may write and that do not follow
//! from what the writer may write. With `--strict` it denies them. It uses the same tables as the engine, so it never
//! denies a step of Podward. An error that the pod had before the write does not deny the write.
//!
//! A write that leads to the deletion of the pod needs the right to delete it, and one that allows a delete without
//! draining needs the verb `break-glass` on `pods.podward.io`. [`WriterRights`] asks the API server for them.
//!
//! # Held deletions
//!
//! The caller gets status 429 with the reason TooManyRequests and a message with the consumers that still use the pod.
//! Drain tools and workload controllers retry after this status. Before the response, a replica of the
//! lifecycle-controller records the deletion request on the pod (gRPC `Lifecycle.RequestDeletion`). The
//! lifecycle-controller then drains and deletes the pod by itself. If no replica is available, the response is 429 too,
//! and the next attempt of the caller records the request. A repeated request that is already recorded is answered
//! without a call.
//!
//! # Guarantees
//!
//! - A deletion is allowed only for an observed reason ([`podward_core::deletion::hold::AllowReason`]). An API error,
//!   an empty cache or a failed watch is not a reason. That a node is gone is always read from the API server.
//! - Every request is answered within `timeoutSeconds` of the webhook configuration. Requests do not queue: a request
//!   that exceeds the limit is answered with 429.
//! - A dry run has no effect.
#![forbid(unsafe_code)]

mod discovery_webhook;
mod hold;
mod pod_access;
mod pod_events;
mod pod_webhook;
mod reviewed_object;
mod rule_webhook;
mod writer_rights;

pub use discovery_webhook::{DiscoveryWebhook, ParsedDiscovery};
pub use hold::{ControllerClient, DeletionHold, HoldOptions, RequestRecorder};
pub use pod_access::{BREAK_GLASS_GROUP, BREAK_GLASS_VERB};
pub use pod_webhook::PodWebhook;
pub use reviewed_object::ReviewedObject;
pub use rule_webhook::{ParsedRule, RuleWebhook};
pub use writer_rights::WriterRights;

use std::path::PathBuf;
use std::time::Duration;

use podward_runtime::address_policy::{AddressPolicy, ApiServerAddresses};
use podward_runtime::args::{AddressArgs, ControllerArgs, NodeArgs, ReviewArgs, seconds};
use podward_runtime::grpc_client::BearerToken;
use podward_runtime::{WebhookArgs, WebhookSetup, client, run_webhook};

/// The name of the service.
pub const SERVICE: &str = env!("CARGO_PKG_NAME");
/// Its version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Denies writes that violate the PodOpsLifecycle protocol, and holds deletes of pods until they are drained
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
    #[command(flatten)]
    #[allow(missing_docs)]
    pub addresses: AddressArgs,
}

/// Arguments of the hold of deletes and evictions.
#[derive(Clone, Debug, clap::Args)]
pub struct HoldArgs {
    /// Hold deletes and evictions of opted-in pods. With false all are allowed, without a request to the API server or
    /// the lifecycle-controller
    #[arg(long, env = "PODWARD_HOLD", default_value_t = true, action = clap::ArgAction::Set)]
    pub hold: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub node: NodeArgs,
    /// Seconds for which a delete by a person or a tool waits until its pod is drained, so that the delete succeeds.
    /// The wait ends before timeoutSeconds of the webhook configuration
    #[arg(long, env = "PODWARD_WAIT", default_value = "0", value_parser = seconds)]
    pub wait: Duration,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub controller: ControllerArgs,
    /// File with the service account token that authenticates this service. It is read again when it changes
    #[arg(
        long,
        env = "PODWARD_TOKEN_FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    pub token_file: PathBuf,
}

impl Args {
    /// Returns the webhook for pods, and starts its watches. Adds the webhook for rules to `setup`.
    ///
    /// # Errors
    ///
    /// Fails if there is no configuration for the API server, or if a URL of the lifecycle-controller is invalid.
    pub async fn hook(&self, setup: &mut WebhookSetup) -> anyhow::Result<PodWebhook> {
        // It only warns, so the addresses of the API server that it does not know change nothing.
        let service_host = std::env::var("KUBERNETES_SERVICE_HOST").ok();
        let api_server = ApiServerAddresses::of_client("", service_host.as_deref());
        setup.also_serve(RuleWebhook::new(AddressPolicy::new(&self.addresses.allowed_addresses, api_server)));
        let webhook = PodWebhook::new(self.review.policy());
        let client = client::connect(&self.webhook.kube, SERVICE, VERSION).await?;
        let namespace = &self.webhook.tls.certificate.namespace;
        setup.also_serve(DiscoveryWebhook::new(client.clone(), namespace));
        if !self.hold.hold {
            let rights = WriterRights::new(client, None, setup);
            return Ok(webhook.with_rights(rights));
        }
        let replicas = self.hold.controller.replicas(&self.webhook.tls.certificate, &setup.secret)?;
        let controller = ControllerClient::new(replicas, BearerToken::from_file(&self.hold.token_file));
        let options =
            HoldOptions { unreachable_limit: self.hold.node.node_unreachable_limit, wait: self.hold.wait };
        let hold = DeletionHold::new(options, client.clone(), controller, setup);
        let rights = WriterRights::new(client, Some(&hold), setup);
        Ok(webhook.with_hold(hold).with_rights(rights))
    }

    /// Serves until the process receives SIGTERM or SIGINT.
    ///
    /// # Errors
    ///
    /// Fails if logging, the certificate or the ports cannot be set up, or if [`hook`](Self::hook) fails.
    pub fn run(self) -> anyhow::Result<()> {
        run_webhook(&self.webhook, SERVICE, VERSION, async |setup| self.hook(setup).await)
    }
}
