//! The flags of the gRPC port.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use podward_runtime::args::{CertificateArgs, LimitArgs, PeerArgs, seconds};
use podward_runtime::tls::{AuthoritySource, CertificateSecret};

use super::revocation::RECHECK_INTERVAL;

/// The flags of the gRPC port.
#[derive(Clone, Debug, Args)]
pub struct GrpcArgs {
    /// Address that the gRPC port listens on. [::] stands for all addresses, IPv6 and IPv4
    #[arg(long, env = "PODWARD_GRPC_BIND", default_value = "[::]:9444")]
    pub grpc_bind: SocketAddr,
    /// Seconds that requests in flight get to finish after the gRPC port is closed
    #[arg(long, env = "PODWARD_DRAIN_TIMEOUT", default_value = "10", value_parser = seconds)]
    pub drain_timeout: Duration,
    /// The serving certificate.
    #[command(flatten)]
    pub certificate: CertificateArgs,
    /// The token of this replica, and the accepted callers.
    #[command(flatten)]
    pub peers: PeerArgs,
    /// The limits of the gRPC port.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Address at which other replicas reach the gRPC port of this replica; default: the address that the port listens
    /// on, unless that stands for all addresses
    #[arg(long, env = "PODWARD_ADVERTISE", value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// PEM file with the certificate authorities of the replicas' gRPC certificates; default: ca.crt in the Secret of
    /// --tls-secret; without both, hook systems can attach only to the leader
    #[arg(long, env = "PODWARD_RELAY_CA", value_name = "FILE")]
    pub relay_ca: Option<PathBuf>,
    /// Server name in the replicas' gRPC certificates; default: the host that a replica advertises
    #[arg(long, env = "PODWARD_RELAY_SERVER_NAME", value_name = "NAME")]
    pub relay_server_name: Option<String>,
    /// User that may request the deletion of pods in the name of other users; can be repeated
    #[arg(
        long = "trusted-requester",
        env = "PODWARD_TRUSTED_REQUESTERS",
        value_delimiter = ',',
        default_value = "system:serviceaccount:podward-system:validating-webhook"
    )]
    pub trusted_requesters: Vec<String>,
    /// Audience of callers' tokens that is accepted in addition to the audience of the API server
    #[arg(long, env = "PODWARD_TOKEN_AUDIENCE", default_value = "podward")]
    pub token_audience: String,
    /// The time after which the right of a stream's caller is checked again. It is not a flag.
    #[arg(skip = RECHECK_INTERVAL)]
    pub recheck_interval: Duration,
}

impl GrpcArgs {
    /// Returns the certificate authorities of the replicas; `None` if no flag names any.
    pub fn relay_ca(&self, secret: &CertificateSecret) -> Option<AuthoritySource> {
        let is_given = self.relay_ca.is_some() || self.certificate.tls_secret.is_some();
        is_given.then(|| self.certificate.authorities(self.relay_ca.as_deref(), secret))
    }

    /// Returns the address at which other replicas reach this one, which listens on `bound`; `None` if it is not known.
    pub fn address(&self, bound: SocketAddr) -> Option<String> {
        let own = (!bound.ip().is_unspecified()).then(|| bound.to_string());
        self.advertise.as_deref().map(bracketed).or(own)
    }
}

/// Returns `host:port` with brackets around an IPv6 address. The downward API returns addresses of pods without them.
fn bracketed(address: &str) -> String {
    match address.rsplit_once(':') {
        Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => format!("[{host}]:{port}"),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::{GrpcArgs, bracketed};

    #[derive(Parser)]
    struct All {
        #[command(flatten)]
        grpc: GrpcArgs,
    }

    #[test]
    fn the_port_is_drained_as_long_as_the_flag_says() {
        let drain = |args: &[&str]| All::parse_from([&["x"], args].concat()).grpc.drain_timeout;
        assert_eq!(drain(&[]), Duration::from_secs(10));
        assert_eq!(drain(&["--drain-timeout", "25"]), Duration::from_secs(25));
    }

    #[test]
    fn all_addresses_are_no_address_for_other_replicas() {
        let bound = |args: &[&str], bound: &str| {
            All::parse_from([&["x"], args].concat()).grpc.address(bound.parse().unwrap())
        };
        for unspecified in ["[::]:9444", "0.0.0.0:9444"] {
            assert_eq!(bound(&[], unspecified), None);
            assert_eq!(
                bound(&["--advertise", "fd00::1:9444"], unspecified).as_deref(),
                Some("[fd00::1]:9444")
            );
        }
        assert_eq!(bound(&[], "[fd00::2]:9444").as_deref(), Some("[fd00::2]:9444"));
    }

    #[test]
    fn ipv6_addresses_get_brackets() {
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
