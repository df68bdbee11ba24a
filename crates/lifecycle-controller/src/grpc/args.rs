//! Command line of the gRPC port.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use podward_runtime::args::SecretArgs;

/// Arguments of the gRPC port.
#[derive(Clone, Debug, Args)]
pub(crate) struct GrpcArgs {
    /// Address of the gRPC port
    #[arg(long, env = "PODWARD_GRPC_BIND", default_value = "0.0.0.0:9444")]
    pub(crate) grpc_bind: SocketAddr,
    /// PEM file with the server's certificate, then its chain; read again when it changes
    #[arg(long, env = "PODWARD_TLS_CERT", default_value = "/etc/podward/tls/tls.crt")]
    pub(crate) tls_cert: PathBuf,
    /// PEM file with the certificate's private key; read again when it changes
    #[arg(long, env = "PODWARD_TLS_KEY", default_value = "/etc/podward/tls/tls.key")]
    pub(crate) tls_key: PathBuf,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
    /// PEM file with the authorities of client certificates (common name: user, organisation: group); without it, callers need tokens
    #[arg(long, env = "PODWARD_CLIENT_CA", value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,
    /// What other replicas reach this one's gRPC port by; the port's address when not given and not 0.0.0.0
    #[arg(long, env = "PODWARD_ADVERTISE", value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,
    /// PEM file with the authorities of the replicas' gRPC certificates; without it that of --tls-secret; without that too, hook systems
    /// can attach to the leader alone
    #[arg(long, env = "PODWARD_RELAY_CA", value_name = "FILE")]
    pub(crate) relay_ca: Option<PathBuf>,
    /// Name that the replicas' gRPC certificates are for; the host that they advertise when not given
    #[arg(long, env = "PODWARD_RELAY_SERVER_NAME", value_name = "NAME")]
    pub(crate) relay_server_name: Option<String>,
    /// File with this service's own token, which it shows to the leader; read again when it changes
    #[arg(
        long,
        env = "PODWARD_TOKEN_FILE",
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    pub(crate) token_file: PathBuf,
    /// User name of this service, as which it relays callers to the leader
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_USER",
        default_value = "system:serviceaccount:podward-system:lifecycle-controller"
    )]
    pub(crate) controller_user: String,
    /// User that may say in whose name a pod is to be deleted; may be given several times
    #[arg(
        long = "trusted-requester",
        env = "PODWARD_TRUSTED_REQUESTERS",
        value_delimiter = ',',
        default_value = "system:serviceaccount:podward-system:validating-webhook"
    )]
    pub(crate) trusted_requesters: Vec<String>,
    /// Audience that callers' tokens may be for, besides the API server's own
    #[arg(long, env = "PODWARD_TOKEN_AUDIENCE", default_value = "podward")]
    pub(crate) token_audience: String,
}

impl GrpcArgs {
    /// The authorities of the replicas' certificates, if there are any.
    pub(crate) fn relay_ca(&self) -> Option<PathBuf> {
        let of_secret = || self.secret.tls_secret.is_some().then(|| self.tls_cert.with_file_name("ca.crt"));
        self.relay_ca.clone().or_else(of_secret)
    }

    /// Where other replicas reach this one, which listens on `bound`.
    pub(crate) fn address(&self, bound: SocketAddr) -> Option<String> {
        let own = (!bound.ip().is_unspecified()).then(|| bound.to_string());
        self.advertise.as_deref().map(bracketed).or(own)
    }
}

/// `host:port` with an IPv6 address in brackets, also if it came without: as the downward API gives a pod's address.
fn bracketed(address: &str) -> String {
    match address.rsplit_once(':') {
        Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => format!("[{host}]:{port}"),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::bracketed;

    #[test]
    fn addresses_of_both_families_are_written_as_they_are_read() {
        for (given, written) in [
            ("10.0.0.1:9444", "10.0.0.1:9444"),
            ("fd00::1:9444", "[fd00::1]:9444"),
            ("[fd00::1]:9444", "[fd00::1]:9444"),
            ("lc.podward-system.svc:9444", "lc.podward-system.svc:9444"),
        ] {
            assert_eq!(bracketed(given), written);
        }
    }
}
