//! Command line.

use std::time::Duration;

use clap::Parser;
use podward_runtime::args::{AddressArgs, KubeArgs, LeaseArgs, NodeArgs, ProcessArgs, seconds};

use podward_certificates::{AuthorityArgs, WebhookPathArgs};
use podward_hooks::HookArgs;
use podward_lifecycle_grpc::GrpcArgs;

/// Podward's lifecycle-controller: the one writer of the readiness gate, permissions and service-available of opted-in
/// pods
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) kube: KubeArgs,
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    #[command(flatten)]
    pub(crate) grpc: GrpcArgs,
    #[command(flatten)]
    pub(crate) hooks: HookArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    #[command(flatten)]
    pub(crate) addresses: AddressArgs,
    /// Seconds that an operation waits at most for a pod that says that it is busy, from when it was announced
    #[arg(long, env = "PODWARD_MAX_BUSY", default_value = "3600", value_parser = seconds)]
    pub(crate) max_busy: Duration,
    /// Try each deletion as a dry run in the name of its requester before the pod leaves service, and again before it is
    /// deleted, so that other admission webhooks can deny it. Needs the right to impersonate users
    #[arg(long, env = "PODWARD_CHECK_DELETES_AS_REQUESTER")]
    pub(crate) check_deletes_as_requester: bool,
    #[command(flatten)]
    pub(crate) certificates: AuthorityArgs,
    #[command(flatten)]
    pub(crate) paths: WebhookPathArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Args;

    #[test]
    fn the_arguments_fit_together() {
        Args::command().debug_assert();
    }
}
