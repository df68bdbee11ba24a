//! Command line arguments that services have in common.

pub(crate) mod parsers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use podward_core::ReviewPolicy;
use prometheus_client::registry::Registry;

use crate::budget::{self, ByteBudget};
use crate::grpc_client::{Replicas, Trust};
use crate::telemetry::traces::TraceArgs;
use crate::tls::CertificateSecret;

pub use crate::lease::LeaseArgs;
pub use crate::tls::{CertificateArgs, PeerArgs};
pub use parsers::{network, seconds};

/// Arguments of the process itself.
#[derive(Clone, Debug, Args)]
pub struct ProcessArgs {
    /// Worker threads; one for each CPU when not given
    #[arg(long, env = "PODWARD_THREADS", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub threads: Option<u16>,
    /// Address of the HTTP port with /livez, /readyz and /metrics. [::] stands for all addresses, IPv6 and IPv4
    #[arg(long, env = "PODWARD_ADMIN_BIND", default_value = "[::]:8080")]
    pub admin_bind: SocketAddr,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub log: LogArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub traces: TraceArgs,
}

/// Arguments of logging.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Log filter, as in `info,podward_runtime=debug`
    #[arg(long, env = "PODWARD_LOG", default_value = "info")]
    pub log: String,
    /// Format of log lines
    #[arg(long, env = "PODWARD_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// Arguments of an HTTPS port.
#[derive(Clone, Debug, Args)]
pub struct TlsArgs {
    /// Address of the HTTPS port. [::] stands for all addresses, IPv6 and IPv4
    #[arg(long, env = "PODWARD_BIND", default_value = "[::]:9443")]
    pub bind: SocketAddr,
    /// Seconds to accept connections after the signal to stop, while clients learn that this replica is not ready
    #[arg(long, env = "PODWARD_DRAIN_DELAY", default_value = "0", value_parser = seconds)]
    pub drain_delay: Duration,
    /// Seconds that requests in flight get to finish after the port is closed
    #[arg(long, env = "PODWARD_DRAIN_TIMEOUT", default_value = "10", value_parser = seconds)]
    pub drain_timeout: Duration,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub limits: LimitArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub certificate: CertificateArgs,
}

/// Arguments of the limits of a port.
#[derive(Clone, Debug, Args)]
pub struct LimitArgs {
    /// Maximum number of connections at the same time; connections without a valid request have half of them
    #[arg(long, env = "PODWARD_MAX_CONNECTIONS", default_value_t = 4096)]
    pub max_connections: usize,
    /// Maximum number of bytes of all requests in flight; more are refused
    #[arg(long, env = "PODWARD_MAX_REQUEST_BYTES", value_name = "BYTES", default_value_t = budget::DEFAULT_BYTES)]
    pub max_request_bytes: usize,
}

impl LimitArgs {
    /// Returns the budget for the bytes of requests, with its metrics in `registry`.
    pub fn budget(&self, registry: &mut Registry) -> ByteBudget {
        let budget = ByteBudget::new(self.max_request_bytes);
        budget.register(registry);
        budget
    }
}

/// Arguments of the review of writes to pods, the same for both webhooks.
#[derive(Clone, Debug, Args)]
pub struct ReviewArgs {
    /// Deny incomplete operations, protected labels from untrusted writers, and the label to-delete from users who may
    /// not delete the pod, which otherwise only cause warnings
    #[arg(long, env = "PODWARD_STRICT")]
    pub strict: bool,
    /// User name of the lifecycle-controller, which may always write protected labels
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_USER",
        default_value = "system:serviceaccount:podward-system:lifecycle-controller"
    )]
    pub controller_user: String,
    /// Another user that may write protected labels; may be given several times
    #[arg(long = "trusted-writer", env = "PODWARD_TRUSTED_WRITERS", value_delimiter = ',')]
    pub trusted_writers: Vec<String>,
}

impl ReviewArgs {
    /// Returns the policy that these arguments configure.
    #[must_use]
    pub fn policy(&self) -> ReviewPolicy {
        let trusted = self.trusted_writers.iter().chain([&self.controller_user]).cloned().collect();
        ReviewPolicy { strict: self.strict, trusted }
    }
}

/// Arguments of the client of the API server.
#[derive(Clone, Debug, Default, Args)]
pub struct KubeArgs {
    /// Kubeconfig file; when not given: KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

/// Arguments of the connection to the lifecycle-controller.
#[derive(Clone, Debug, Args)]
pub struct ControllerArgs {
    /// URL of the gRPC port of the lifecycle-controller. For several replicas, repeat the flag or separate the URLs by
    /// commas. They are tried in this order
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_URL",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "https://lifecycle-controller.podward-system.svc:9444"
    )]
    pub controller_url: Vec<String>,
    /// PEM file with the certificate authorities that the lifecycle-controller's certificate is verified with. It is
    /// read again when it changes. The default is ca.crt in the Secret of --tls-secret, or the file ca.crt beside
    /// --tls-cert
    #[arg(long, env = "PODWARD_CONTROLLER_CA", value_name = "FILE")]
    pub controller_ca: Option<PathBuf>,
}

impl ControllerArgs {
    /// Returns the replicas of the lifecycle-controller.
    ///
    /// # Errors
    ///
    /// When a URL is invalid.
    pub fn replicas(
        &self,
        certificate: &CertificateArgs,
        secret: &CertificateSecret,
    ) -> anyhow::Result<Replicas> {
        let authorities = certificate.authorities(self.controller_ca.as_deref(), secret);
        Replicas::new(&self.controller_url, Trust::new(authorities)).context("--controller-url")
    }
}

/// Arguments of unreachable nodes. The webhook that holds deletes, the controller that executes them and the bridge to
/// registries have the same.
#[derive(Clone, Debug, Args)]
pub struct NodeArgs {
    /// Seconds that a node must not have been Ready before it counts as lost: its pods are deleted without waiting for
    /// consumers, and removed from registries
    #[arg(long, env = "PODWARD_NODE_UNREACHABLE_LIMIT", default_value = "60", value_parser = seconds)]
    pub node_unreachable_limit: Duration,
}

/// Arguments of connections to URLs that users without rights in Podward's namespace wrote.
#[derive(Clone, Debug, Default, Args)]
pub struct AddressArgs {
    /// Network, as in `10.0.0.0/24`, that URLs of users may lead to although such addresses are refused by default:
    /// those of the API server, of this host, link-local ones and those of metadata services; may be given several
    /// times
    #[arg(
        long = "allow-address",
        env = "PODWARD_ALLOWED_ADDRESSES",
        value_name = "CIDR",
        value_delimiter = ',',
        value_parser = network
    )]
    pub allowed_addresses: Vec<IpNet>,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct All {
        #[command(flatten)]
        process: ProcessArgs,
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        kube: KubeArgs,
        #[command(flatten)]
        lease: LeaseArgs,
        #[command(flatten)]
        review: ReviewArgs,
        #[command(flatten)]
        node: NodeArgs,
        #[command(flatten)]
        addresses: AddressArgs,
        #[command(flatten)]
        controller: ControllerArgs,
    }

    #[test]
    fn allowed_addresses_are_networks() {
        let args = ["x", "--allow-address", "127.0.0.0/8,10.0.0.9", "--allow-address", "fd00::1/8"];
        let found: Vec<String> =
            All::parse_from(args).addresses.allowed_addresses.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.0/8", "10.0.0.9/32", "fd00::/8"]);
        for wrong in ["localhost", "10.0.0.0/33", "::ffff:127.0.0.1/104", ""] {
            let error = network(wrong).unwrap_err();
            assert!(error.contains("network"), "{error}");
        }
    }

    #[test]
    fn other_trusted_writers_leave_the_controller_trusted() {
        let policy =
            All::parse_from(["x", "--trusted-writer", "a,b", "--trusted-writer", "c"]).review.policy();
        assert_eq!(
            policy.trusted,
            ["a", "b", "c", "system:serviceaccount:podward-system:lifecycle-controller"]
        );
    }

    #[test]
    fn arguments_do_not_conflict() {
        All::command().debug_assert();
        let args = All::parse_from(["x", "--drain-delay", "0.5", "--lease-duration", "3"]);
        assert_eq!(args.tls.drain_delay, Duration::from_millis(500));
        let params = args.lease.params("service");
        assert_eq!((params.name.as_str(), params.duration), ("service", Duration::from_secs(3)));
        assert_eq!(args.process.threads, None);
        assert!(All::try_parse_from(["x", "--drain-delay", "soon"]).is_err());
        assert!(All::try_parse_from(["x", "--drain-delay", "-1"]).is_err());
    }
}
