//! Command line of the gRPC port.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use podward_runtime::args::{CertificateArgs, PeerArgs};

/// Arguments of the gRPC port.
#[derive(Clone, Debug, Args)]
pub(crate) struct GrpcArgs {
    /// Address of the gRPC port
    #[arg(long, env = "PODWARD_GRPC_BIND", default_value = "0.0.0.0:9444")]
    pub(crate) grpc_bind: SocketAddr,
    #[command(flatten)]
    pub(crate) certificate: CertificateArgs,
    #[command(flatten)]
    pub(crate) peers: PeerArgs,
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
        let CertificateArgs { tls_cert, secret, .. } = &self.certificate;
        let of_secret = || secret.tls_secret.is_some().then(|| tls_cert.with_file_name("ca.crt"));
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
