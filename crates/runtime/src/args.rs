//! Command line arguments that services share, to flatten into their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use kube::Client;
use podward_core::ReviewPolicy;
use tokio_util::sync::CancellationToken;

use crate::lease::LeaseParams;
use crate::telemetry::traces::TraceArgs;
use crate::tls::{Certificates, CertificatesError, TlsMetrics, keep_as_files};

/// Arguments of the process itself.
#[derive(Clone, Debug, Args)]
pub struct ProcessArgs {
    /// Worker threads; as many as there are CPUs when not given
    #[arg(long, env = "PODWARD_THREADS", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub threads: Option<u16>,
    /// Address of the plain port with /livez, /readyz and /metrics
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
    /// What is logged, as in `info,podward_runtime=debug`
    #[arg(long, env = "PODWARD_LOG", default_value = "info")]
    pub log: String,
    /// How a line looks
    #[arg(long, env = "PODWARD_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
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
    /// Seconds to go on accepting after the signal to stop, while clients learn that this replica is not ready any more
    #[arg(long, env = "PODWARD_DRAIN_DELAY", default_value = "0", value_parser = seconds)]
    pub drain_delay: Duration,
    /// Seconds that requests in flight get to finish once nothing more is accepted
    #[arg(long, env = "PODWARD_DRAIN_TIMEOUT", default_value = "10", value_parser = seconds)]
    pub drain_timeout: Duration,
    /// Connections at a time
    #[arg(long, env = "PODWARD_MAX_CONNECTIONS", default_value_t = 4096)]
    pub max_connections: usize,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub certificate: CertificateArgs,
}

/// Arguments of a server's certificate.
#[derive(Clone, Debug, Args)]
pub struct CertificateArgs {
    /// PEM file with the server's certificate, then its chain; read again when it changes
    #[arg(long, env = "PODWARD_TLS_CERT", default_value = "/etc/podward/tls/tls.crt")]
    pub tls_cert: PathBuf,
    /// PEM file with the certificate's private key; read again when it changes
    #[arg(long, env = "PODWARD_TLS_KEY", default_value = "/etc/podward/tls/tls.key")]
    pub tls_key: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub secret: SecretArgs,
}

impl CertificateArgs {
    /// Begins to keep the files, if it is asked for, and waits until they are there.
    ///
    /// # Errors
    ///
    /// When the folder can't be written to, or `stop` comes first.
    pub async fn keep(&self, client: &Client, stop: &CancellationToken) -> anyhow::Result<()> {
        self.secret.keep(client, &self.tls_cert, stop).await
    }

    /// Reads the files.
    ///
    /// # Errors
    ///
    /// When they can't be read, aren't PEM, or don't belong together.
    pub fn load(&self, metrics: TlsMetrics) -> Result<Certificates, CertificatesError> {
        Certificates::load(&self.tls_cert, &self.tls_key, metrics)
    }
}

/// Arguments of the Secret with a service's certificate.
#[derive(Clone, Debug, Args)]
pub struct SecretArgs {
    /// Secret with the certificate (tls.crt, tls.key, ca.crt), which is kept as files in the folder of --tls-cert; without it the files
    /// are somebody else's to keep
    #[arg(long, env = "PODWARD_TLS_SECRET", value_name = "NAME")]
    pub tls_secret: Option<String>,
    /// Namespace of that Secret
    #[arg(long, env = "PODWARD_NAMESPACE", default_value = "podward-system")]
    pub namespace: String,
}

impl SecretArgs {
    async fn keep(&self, client: &Client, cert: &Path, stop: &CancellationToken) -> anyhow::Result<()> {
        let Some(name) = &self.tls_secret else { return Ok(()) };
        let folder = cert.parent().context("--tls-cert has no folder")?;
        keep_as_files(client.clone(), &self.namespace, name, folder, stop.clone()).await
    }
}

/// Arguments of services that call each other over gRPC: who calls this one, and what it shows to others.
#[derive(Clone, Debug, Args)]
pub struct PeerArgs {
    /// PEM file with the authorities of client certificates (common name: user, organisation: group); without it, callers need tokens
    #[arg(long, env = "PODWARD_CLIENT_CA", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// User name of the lifecycle-controller
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_USER",
        default_value = "system:serviceaccount:podward-system:lifecycle-controller"
    )]
    pub controller_user: String,
    /// File with this service's own token, which it shows to the lifecycle-controller; read again when it changes
    #[arg(
        long,
        env = "PODWARD_TOKEN_FILE",
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    pub token_file: PathBuf,
}

impl PeerArgs {
    /// The server's certificate, with which clients are asked for theirs if that is wanted.
    ///
    /// # Errors
    ///
    /// When a file can't be read, isn't PEM, or the certificate and its key don't belong together.
    pub fn certificates(
        &self,
        certificate: &CertificateArgs,
        metrics: TlsMetrics,
    ) -> Result<Certificates, CertificatesError> {
        let certificates = certificate.load(metrics)?;
        match &self.client_ca {
            Some(client_ca) => certificates.with_client_ca(client_ca),
            None => Ok(certificates),
        }
    }
}

/// Arguments of the judgement of writes to pods, the same for both webhooks.
#[derive(Clone, Debug, Args)]
pub struct ReviewArgs {
    /// Deny what is otherwise only warned of: half announcements, and protected labels written by strangers
    #[arg(long, env = "PODWARD_STRICT")]
    pub strict: bool,
    /// User name of the lifecycle-controller, which may always write the labels that only Podward writes
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_USER",
        default_value = "system:serviceaccount:podward-system:lifecycle-controller"
    )]
    pub controller_user: String,
    /// Further user that may write them; may be given several times
    #[arg(long = "trusted-writer", env = "PODWARD_TRUSTED_WRITERS", value_delimiter = ',')]
    pub trusted_writers: Vec<String>,
}

impl ReviewArgs {
    /// The policy that these arguments ask for.
    #[must_use]
    pub fn policy(&self) -> ReviewPolicy {
        let trusted = self.trusted_writers.iter().chain([&self.controller_user]).cloned().collect();
        ReviewPolicy { strict: self.strict, trusted }
    }
}

/// Arguments of the connection to the API server.
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
    /// Who this replica is; made of the host name and a random part when not given
    #[arg(long, env = "PODWARD_IDENTITY")]
    pub identity: Option<String>,
    /// Seconds after which a leader that is not heard of is replaced
    #[arg(long, env = "PODWARD_LEASE_DURATION", default_value = "10", value_parser = seconds)]
    pub lease_duration: Duration,
}

impl LeaseArgs {
    /// The parameters of the election for `service`.
    #[must_use]
    pub fn params(&self, service: &str) -> LeaseParams {
        LeaseParams {
            namespace: self.lease_namespace.clone(),
            name: self.lease_name.clone().unwrap_or_else(|| service.to_owned()),
            identity: self.identity(),
            duration: self.lease_duration,
            address: None,
        }
    }

    /// Who this replica is. The random part makes a restarted process another one, so that it doesn't take a lease for its own
    /// whose work it knows nothing of.
    #[must_use]
    pub fn identity(&self) -> String {
        self.identity.clone().unwrap_or_else(|| {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            let host = host.trim();
            format!("{}_{:08x}", if host.is_empty() { "podward" } else { host }, fastrand::u32(..))
        })
    }
}

/// When pods of a node are given up. The same for who holds deletes and who carries them out.
#[derive(Clone, Debug, Args)]
pub struct NodeArgs {
    /// Seconds that a node must not have been Ready until its pods may be deleted, whoever has to let go of them
    #[arg(long, env = "PODWARD_NODE_UNREACHABLE_LIMIT", default_value = "60", value_parser = seconds)]
    pub node_unreachable_limit: Duration,
}

/// Reads seconds, which may have a fraction: `0.5`; at most a day.
///
/// # Errors
///
/// What is wrong with `text`, in words.
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
    }

    #[test]
    fn trusting_others_too_leaves_the_controller_trusted() {
        let policy =
            All::parse_from(["x", "--trusted-writer", "a,b", "--trusted-writer", "c"]).review.policy();
        assert_eq!(
            policy.trusted,
            ["a", "b", "c", "system:serviceaccount:podward-system:lifecycle-controller"]
        );
    }

    #[test]
    fn arguments_go_together() {
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
        assert_ne!(args.identity(), args.identity());
        assert_eq!(LeaseArgs { identity: Some("me".to_owned()), ..args }.identity(), "me");
    }
}
