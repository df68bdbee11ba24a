//! Command line arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use podward_runtime::args::{ControllerArgs, KubeArgs, PeerArgs, ProcessArgs, TlsArgs, seconds};

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
    /// URL of the metrics of a node's kube-proxy, or `auto` for http://{node_ip}:10249/metrics. Where they cannot be
    /// read, the node-agent reads them, if there is one. Without it no kube-proxy is read, and the evidence is BOUNDED
    /// instead of PROVEN
    #[arg(long, env = "PODWARD_KUBE_PROXY_METRICS_URL", value_name = "URL", value_parser = metrics_url)]
    pub(crate) kube_proxy_metrics_url: Option<String>,
    #[command(flatten)]
    pub(crate) canary: CanaryArgs,
    #[command(flatten)]
    pub(crate) node_agent: NodeAgentArgs,
    #[command(flatten)]
    pub(crate) waits: WaitArgs,
}

/// The part of a URL that is replaced by the address of the node.
pub(crate) const NODE_IP: &str = "{node_ip}";

/// Arguments of the node-agents, which report the connections to pods.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NodeAgentArgs {
    /// URL of the node-agent of a node, such as https://{node_ip}:9446. Without it the connections to pods are not known
    #[arg(long, env = "PODWARD_NODE_AGENT_URL", value_name = "URL", value_parser = node_agent_url)]
    pub(crate) node_agent_url: Option<String>,
    /// Name in the certificate of the node-agents
    #[arg(long, env = "PODWARD_NODE_AGENT_NAME", default_value = "node-agent.podward-system.svc")]
    pub(crate) node_agent_name: String,
    /// PEM file with the certificate authorities that the node-agents' certificates are verified with. It is read again
    /// when it changes. The default is ca.crt in the Secret of --tls-secret, or the file ca.crt beside --tls-cert
    #[arg(long, env = "PODWARD_NODE_AGENT_CA", value_name = "FILE")]
    pub(crate) node_agent_ca: Option<PathBuf>,
    /// File with the token that is sent to the node-agents; read again when it changes. Its audience is
    /// podward.io/node-agent
    #[arg(
        long,
        env = "PODWARD_NODE_AGENT_TOKEN_FILE",
        value_name = "FILE",
        default_value = "/var/run/secrets/podward/node-agent/token"
    )]
    pub(crate) node_agent_token_file: PathBuf,
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
    #[command(flatten)]
    pub(crate) controller: ControllerArgs,
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
    /// Seconds to wait at most for connections that still carry data, if a node-agent reports them
    #[arg(long, env = "PODWARD_CONNECTION_WAIT", default_value = "60", value_parser = seconds)]
    connection_wait: Duration,
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
            connections: self.connection_wait,
            dns_ttl: self.dns_ttl,
            surge: self.surge_wait,
        }
    }
}

/// The value of `--kube-proxy-metrics-url` for the port that kube-proxy has by default.
const AUTO: &str = "auto";
const DEFAULT_METRICS_URL: &str = "http://{node_ip}:10249/metrics";

fn metrics_url(text: &str) -> Result<String, String> {
    if text == AUTO {
        return Ok(DEFAULT_METRICS_URL.to_owned());
    }
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

fn node_agent_url(text: &str) -> Result<String, String> {
    if !text.contains(NODE_IP) {
        return Err(format!("{text:?} does not contain {{node_ip}}: each node has an agent of its own"));
    }
    let example = text.replace(NODE_IP, "10.0.0.1");
    podward_runtime::grpc_client::Target::parse(&example).map_err(|error| error.to_string())?;
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
        let auto = Args::parse_from(["x", "--kube-proxy-metrics-url", "auto"]);
        assert_eq!(auto.kube_proxy_metrics_url.as_deref(), Some(DEFAULT_METRICS_URL));
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
