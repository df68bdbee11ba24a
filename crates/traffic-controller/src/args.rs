//! Command line arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use podward_runtime::args::{KubeArgs, PeerArgs, ProcessArgs, TlsArgs, seconds};

use crate::verdict::WaitTimes;

/// Removes pods from Services before an operation, adds them again afterwards, and reports the evidence
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
    #[command(flatten)]
    pub(crate) registration: RegistrationArgs,
    /// URL of the metrics of a node's kube-proxy, such as http://{node_ip}:10249/metrics. Without it no kube-proxy is
    /// read, and the evidence is BOUNDED instead of PROVEN
    #[arg(long, env = "PODWARD_KUBE_PROXY_METRICS_URL", value_name = "URL", value_parser = metrics_url)]
    pub(crate) kube_proxy_metrics_url: Option<String>,
    #[command(flatten)]
    pub(crate) canary: CanaryArgs,
    #[command(flatten)]
    pub(crate) waits: WaitArgs,
}

/// Arguments of the canary, which proves in clusters with several API servers what kube-proxies have received.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CanaryArgs {
    /// Service of type NodePort without a selector in Podward's namespace, whose EndpointSlice this process writes while
    /// a pod waits in a cluster with several API servers. Without it, the evidence in such clusters is BOUNDED instead
    /// of PROVEN
    #[arg(long, env = "PODWARD_CANARY_SERVICE", value_name = "NAME", requires = "pod_ip")]
    pub(crate) canary_service: Option<String>,
    /// Address at which nodes reach this process
    #[arg(long, env = "PODWARD_POD_IP", value_name = "ADDRESS")]
    pub(crate) pod_ip: Option<std::net::IpAddr>,
}

/// Arguments of the registration as a hook.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RegistrationArgs {
    /// Name of the hook. Callers' tokens must have the audience podward.io/hooks/<name>
    #[arg(long, env = "PODWARD_HOOK_NAME", default_value = "traffic-controller")]
    pub(crate) hook_name: String,
    /// URL at which the lifecycle-controller reaches this service
    #[arg(
        long,
        env = "PODWARD_ADVERTISE_URL",
        value_name = "URL",
        default_value = "https://traffic-controller.podward-system.svc:9443"
    )]
    pub(crate) advertise_url: String,
    /// PEM file with the certificate authorities that the lifecycle-controller verifies this service's certificate
    /// with. It is read again when it changes. The default is ca.crt in the Secret of --tls-secret, or the file ca.crt
    /// beside --tls-cert
    #[arg(long, env = "PODWARD_ADVERTISE_CA", value_name = "FILE")]
    pub(crate) advertise_ca: Option<PathBuf>,
    /// URL of the gRPC port of the lifecycle-controller. For several replicas, repeat the flag or separate the URLs by
    /// commas. They are tried in this order
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_URL",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "https://lifecycle-controller.podward-system.svc:9444"
    )]
    pub(crate) controller_url: Vec<String>,
    /// PEM file with the certificate authorities that the lifecycle-controller's certificate is verified with. It is
    /// read again when it changes. The default is ca.crt in the Secret of --tls-secret, or the file ca.crt beside
    /// --tls-cert
    #[arg(long, env = "PODWARD_CONTROLLER_CA", value_name = "FILE")]
    pub(crate) controller_ca: Option<PathBuf>,
}

/// The times to wait where nothing can be observed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// Seconds after which a proxy that cannot be read counts as having applied a change
    #[arg(long, env = "PODWARD_PROPAGATION", default_value = "5", value_parser = seconds)]
    propagation: Duration,
    /// Seconds to wait for requests in flight if the pod does not report them
    #[arg(long, env = "PODWARD_QUIET_PERIOD", default_value = "2", value_parser = seconds)]
    quiet_period: Duration,
    /// Seconds for which clients of headless Services cache a DNS answer
    #[arg(long, env = "PODWARD_DNS_TTL", default_value = "30", value_parser = seconds)]
    dns_ttl: Duration,
    /// Seconds to wait for a replacement before the last ready endpoint of a Service is removed
    #[arg(long, env = "PODWARD_SURGE_WAIT", default_value = "60", value_parser = seconds)]
    surge_wait: Duration,
}

impl WaitArgs {
    pub(crate) fn wait_times(&self) -> WaitTimes {
        WaitTimes {
            propagation: self.propagation,
            quiet: self.quiet_period,
            dns_ttl: self.dns_ttl,
            surge: self.surge_wait,
        }
    }
}

fn metrics_url(text: &str) -> Result<String, String> {
    let example = text.replace("{node_ip}", "10.0.0.1");
    let uri: hyper::Uri = example.parse().map_err(|error| format!("{text:?} is not a valid URL: {error}"))?;
    if uri.scheme_str() != Some("http") || uri.host().is_none() {
        return Err(format!(
            "{text:?} must have the form http://{{node_ip}}:10249/metrics, because kube-proxy serves plain HTTP"
        ));
    }
    if !text.contains("{node_ip}") {
        return Err(format!(
            "{text:?} does not contain {{node_ip}}: the kube-proxy of one node would count for all nodes"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_parsed() {
        Args::command().debug_assert();
        let args = Args::parse_from([
            "x",
            "--propagation",
            "0.5",
            "--kube-proxy-metrics-url",
            "http://{node_ip}:1/m",
        ]);
        assert_eq!(args.waits.wait_times().propagation, Duration::from_millis(500));
        assert_eq!(args.waits.wait_times().surge, Duration::from_secs(60));
        for bad in ["https://{node_ip}:1", "10249", "http://", "http://10.0.0.1:10249/metrics"] {
            assert!(Args::try_parse_from(["x", "--kube-proxy-metrics-url", bad]).is_err(), "{bad}");
        }
        assert!(Args::try_parse_from(["x", "--canary-service", "canary"]).is_err(), "it needs an address");
        for bad in ["-1", "soon", "1e9", "NaN"] {
            assert!(Args::try_parse_from(["x", "--quiet-period", bad]).is_err(), "{bad}");
        }
    }
}
