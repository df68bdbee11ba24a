//! Command line arguments that services have in common.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use kube::Client;
use podward_core::ReviewPolicy;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::budget::{self, ByteBudget};
use crate::lease::LeaseParams;
use crate::telemetry::traces::TraceArgs;
use crate::tls::{
    AuthoritySource, CertificateSecret, CertificateSource, ServingCertificate, ServingCertificateError,
    TlsMetrics,
};

/// Arguments of the process itself.
#[derive(Clone, Debug, Args)]
pub struct ProcessArgs {
    /// Worker threads; one for each CPU when not given
    #[arg(long, env = "PODWARD_THREADS", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub threads: Option<u16>,
    /// Address of the HTTP port with /livez, /readyz and /metrics
    #[arg(long, env = "PODWARD_ADMIN_BIND", default_value = "0.0.0.0:8080")]
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
    /// Address of the HTTPS port
    #[arg(long, env = "PODWARD_BIND", default_value = "0.0.0.0:9443")]
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

/// Arguments of a server's certificate, which is read from a Secret or from files.
#[derive(Clone, Debug, Args)]
pub struct CertificateArgs {
    /// PEM file with the server's certificate, then its chain; read again when it changes
    #[arg(long, env = "PODWARD_TLS_CERT", value_name = "FILE", default_value = "/etc/podward/tls/tls.crt")]
    pub tls_cert: PathBuf,
    /// PEM file with the certificate's private key; read again when it changes
    #[arg(long, env = "PODWARD_TLS_KEY", value_name = "FILE", default_value = "/etc/podward/tls/tls.key")]
    pub tls_key: PathBuf,
    /// Secret with the certificate (tls.crt, tls.key, ca.crt), which is watched; used instead of --tls-cert and
    /// --tls-key
    #[arg(
        long,
        env = "PODWARD_TLS_SECRET",
        value_name = "NAME",
        conflicts_with_all = ["tls_cert", "tls_key"]
    )]
    pub tls_secret: Option<String>,
    /// Namespace of that Secret
    #[arg(long, env = "PODWARD_NAMESPACE", default_value = "podward-system")]
    pub namespace: String,
}

impl CertificateArgs {
    /// Begins to watch the Secret of `--tls-secret` and waits until it has a certificate. Without that flag it does
    /// nothing.
    ///
    /// # Errors
    ///
    /// When `stop` comes first.
    pub async fn follow(
        &self,
        secret: &CertificateSecret,
        client: &Client,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let Some(name) = &self.tls_secret else { return Ok(()) };
        secret.follow(client.clone(), &self.namespace, name, stop.clone()).await
    }

    /// Returns the source of the certificate: `secret` if `--tls-secret` is given, else the files.
    #[must_use]
    pub fn source(&self, secret: &CertificateSecret) -> CertificateSource {
        match self.tls_secret {
            Some(_) => CertificateSource::Secret(secret.clone()),
            None => CertificateSource::files(&self.tls_cert, &self.tls_key),
        }
    }

    /// Returns the source of authorities: `file` if it is given, else `ca.crt` in `secret` if `--tls-secret` is given,
    /// else the file `ca.crt` beside `--tls-cert`.
    #[must_use]
    pub fn authorities(&self, file: Option<&Path>, secret: &CertificateSecret) -> AuthoritySource {
        match (file, &self.tls_secret) {
            (Some(file), _) => AuthoritySource::File(file.to_owned()),
            (None, Some(_)) => AuthoritySource::Secret(secret.clone()),
            (None, None) => AuthoritySource::File(self.tls_cert.with_file_name("ca.crt")),
        }
    }
}

/// Arguments of services that call each other over gRPC.
#[derive(Clone, Debug, Args)]
pub struct PeerArgs {
    /// PEM file with the authorities of client certificates (common name: user, organisation: group); callers need
    /// tokens when not given
    #[arg(long, env = "PODWARD_CLIENT_CA", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// User name of the lifecycle-controller
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_USER",
        default_value = "system:serviceaccount:podward-system:lifecycle-controller"
    )]
    pub controller_user: String,
    /// File with the token that this service sends to the lifecycle-controller; read again when it changes
    #[arg(
        long,
        env = "PODWARD_TOKEN_FILE",
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    pub token_file: PathBuf,
}

impl PeerArgs {
    /// Reads the server's certificate. With `--client-ca` the server also requests a certificate from clients.
    ///
    /// # Errors
    ///
    /// When a source can't be read, is not PEM, or the certificate and its key don't belong together.
    pub fn serving_certificate(
        &self,
        source: CertificateSource,
        metrics: TlsMetrics,
    ) -> Result<ServingCertificate, ServingCertificateError> {
        let certificate = ServingCertificate::load(source, metrics)?;
        match &self.client_ca {
            Some(client_ca) => certificate.with_client_ca(AuthoritySource::File(client_ca.clone())),
            None => Ok(certificate),
        }
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

/// Arguments of leader election.
#[derive(Clone, Debug, Args)]
pub struct LeaseArgs {
    /// Namespace of the Lease
    #[arg(long, env = "PODWARD_LEASE_NAMESPACE", default_value = "podward-system")]
    pub lease_namespace: String,
    /// Name of the Lease; the service's own name when not given
    #[arg(long, env = "PODWARD_LEASE_NAME")]
    pub lease_name: Option<String>,
    /// Name of this replica in the election; the host name and a random part when not given
    #[arg(long, env = "PODWARD_IDENTITY")]
    pub identity: Option<String>,
    /// UID of the pod in which this process is the only one that takes part in the election: a Lease that an earlier
    /// process of the pod held when it ended is free. Has no effect with --identity
    #[arg(long, env = "PODWARD_POD_UID")]
    pub pod_uid: Option<String>,
    /// Seconds after which a leader that does not renew the Lease is replaced
    #[arg(long, env = "PODWARD_LEASE_DURATION", default_value = "10", value_parser = seconds)]
    pub lease_duration: Duration,
}

impl LeaseArgs {
    /// Returns the parameters of the election for `service`.
    #[must_use]
    pub fn params(&self, service: &str) -> LeaseParams {
        let (identity, predecessors) = self.identity();
        LeaseParams {
            namespace: self.lease_namespace.clone(),
            name: self.lease_name.clone().unwrap_or_else(|| service.to_owned()),
            identity,
            predecessors,
            duration: self.lease_duration,
            address: None,
        }
    }

    /// Returns the name of this replica in the election, and with what the names of earlier processes of its pod begin. The
    /// random part makes a restarted process another candidate, because it does not know the work of the process before it.
    fn identity(&self) -> (String, Option<String>) {
        if let Some(identity) = &self.identity {
            return (identity.clone(), None);
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("podward");
        let uid = self.pod_uid.as_deref().filter(|uid| !uid.is_empty());
        let of_pod = uid.map(|uid| format!("{host}_{uid}_"));
        let start = of_pod.clone().unwrap_or_else(|| format!("{host}_"));
        (format!("{start}{:08x}", fastrand::u32(..)), of_pod)
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

/// Parses a network (`10.0.0.0/24`, `fd00::/8`), or an address, which stands for itself.
///
/// # Errors
///
/// When `text` is neither; the error says what is valid.
pub fn network(text: &str) -> Result<IpNet, String> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text
            .parse::<IpNet>()
            .map_err(|_| format!("{text:?} is no network, such as 10.0.0.0/24 or fd00::/8"))?,
    };
    match network {
        // Such addresses are compared as IPv4 addresses.
        IpNet::V6(network) if network.addr().to_ipv4_mapped().is_some() => {
            Err(format!("{text:?} is an IPv4-mapped network: write it as an IPv4 network"))
        }
        network => Ok(network.trunc()),
    }
}

/// Parses seconds, which may have a fraction (`0.5`), at most a day.
///
/// # Errors
///
/// When `text` is not such a number; the error says what is wrong with it.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err(format!("{text} must be between 0 and 86400"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
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

    #[test]
    fn identities_differ_from_process_to_process() {
        let args = All::parse_from(["x"]).lease;
        let params = || args.params("service");
        assert_ne!(params().identity, params().identity);
        assert_eq!(params().predecessors, None);
        let named =
            LeaseArgs { identity: Some("me".to_owned()), pod_uid: Some("u".to_owned()), ..args.clone() };
        let named = named.params("service");
        assert_eq!((named.identity.as_str(), named.predecessors), ("me", None));
    }

    #[test]
    fn processes_of_a_pod_are_predecessors_of_each_other() {
        let of = |uid: &str| All::parse_from(["x", "--pod-uid", uid]).lease.params("service");
        let (first, second, other) = (of("u-1"), of("u-1"), of("u-2"));
        assert_ne!(first.identity, second.identity);
        assert!(second.is_predecessor(&first.identity));
        assert!(!other.is_predecessor(&first.identity));
        assert!(!of("").is_predecessor(&of("").identity), "no UID");
    }
}
