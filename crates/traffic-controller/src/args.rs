//! Command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use podward_runtime::args::{KubeArgs, PeerArgs, ProcessArgs, TlsArgs, seconds};

use crate::verdict::Waits;

/// Podward's traffic-controller: lets Services let go of pods before something happens to them, and proves it
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) kube: KubeArgs,
    #[command(flatten)]
    pub(crate) peers: PeerArgs,
    /// Audience that tokens of callers may have besides the API server's own
    #[arg(long, env = "PODWARD_AUDIENCE")]
    pub(crate) audience: Option<String>,
    #[command(flatten)]
    pub(crate) registration: RegistrationArgs,
    /// Metrics of a node's kube-proxy, such as http://{node_ip}:10249/metrics; without it no proxy's state is read, and waits are
    /// bounded instead of proven
    #[arg(long, env = "PODWARD_KUBE_PROXY_METRICS_URL", value_name = "URL", value_parser = metrics_url)]
    pub(crate) kube_proxy_metrics_url: Option<String>,
    #[command(flatten)]
    pub(crate) waits: WaitArgs,
}

/// How it registers as a hook.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RegistrationArgs {
    /// Name of the hook
    #[arg(long, env = "PODWARD_HOOK_NAME", default_value = "traffic-controller")]
    pub(crate) hook_name: String,
    /// Where the lifecycle-controller reaches this service, as in https://traffic-controller.podward-system.svc:9443
    #[arg(
        long,
        env = "PODWARD_ADVERTISE_URL",
        value_name = "URL",
        default_value = "https://traffic-controller.podward-system.svc:9443"
    )]
    pub(crate) advertise_url: String,
    /// PEM file with the authorities that this service's certificate is checked against; read again when it changes
    #[arg(
        long,
        env = "PODWARD_ADVERTISE_CA",
        value_name = "FILE",
        default_value = "/etc/podward/tls/ca.crt"
    )]
    pub(crate) advertise_ca: PathBuf,
    /// Where to register: gRPC of the lifecycle-controller. Several replicas, each asked when those before it can't be reached, are
    /// given by repeating this, or with commas in between
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_URL",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "https://lifecycle-controller.podward-system.svc:9444"
    )]
    pub(crate) controller_url: Vec<String>,
    /// PEM file with the authorities of its certificate
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_CA",
        value_name = "FILE",
        default_value = "/etc/podward/tls/ca.crt"
    )]
    pub(crate) controller_ca: PathBuf,
}

/// How long is waited where nothing can be seen, in seconds.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// Seconds within which a proxy that can't be read has taken in a change
    #[arg(long, env = "PODWARD_PROPAGATION", default_value = "5", value_parser = seconds)]
    propagation: Duration,
    /// Seconds that requests in flight get to end where the pod doesn't tell of them
    #[arg(long, env = "PODWARD_QUIET_PERIOD", default_value = "2", value_parser = seconds)]
    quiet_period: Duration,
    /// Seconds for which clients of headless Services believe a DNS answer
    #[arg(long, env = "PODWARD_DNS_TTL", default_value = "30", value_parser = seconds)]
    dns_ttl: Duration,
    /// Seconds to wait for a replacement before the last endpoint of a Service is taken out
    #[arg(long, env = "PODWARD_SURGE_WAIT", default_value = "60", value_parser = seconds)]
    surge_wait: Duration,
}

impl WaitArgs {
    pub(crate) fn waits(&self) -> Waits {
        Waits {
            propagation: self.propagation,
            quiet: self.quiet_period,
            dns_ttl: self.dns_ttl,
            surge: self.surge_wait,
        }
    }
}

fn metrics_url(text: &str) -> Result<String, String> {
    let example = text.replace("{node_ip}", "10.0.0.1");
    let uri: hyper::Uri = example.parse().map_err(|error| format!("{text:?} is no URL: {error}"))?;
    if uri.scheme_str() != Some("http") || uri.host().is_none() {
        return Err(format!(
            "{text:?} must be like http://{{node_ip}}:10249/metrics: kube-proxy serves plain HTTP"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_go_together() {
        Args::command().debug_assert();
        let args = Args::parse_from([
            "x",
            "--propagation",
            "0.5",
            "--kube-proxy-metrics-url",
            "http://{node_ip}:1/m",
        ]);
        assert_eq!(args.waits.waits().propagation, Duration::from_millis(500));
        assert_eq!(args.waits.waits().surge, Duration::from_secs(60));
        for bad in ["https://{node_ip}:1", "10249", "http://"] {
            assert!(Args::try_parse_from(["x", "--kube-proxy-metrics-url", bad]).is_err(), "{bad}");
        }
        for bad in ["-1", "soon", "1e9", "NaN"] {
            assert!(Args::try_parse_from(["x", "--quiet-period", bad]).is_err(), "{bad}");
        }
    }
}
