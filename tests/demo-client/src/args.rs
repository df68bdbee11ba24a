//! Command line.

use std::{net::SocketAddr, time::Duration};

use clap::Parser;

use crate::{registry::RegistryKind, report::Connections};

/// Sends requests to a Service, or to the instances that a registry shows, and counts the lost ones
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct ClientArgs {
    /// Address and port of the Service; several are used in turn, like the nodes behind a load balancer
    #[arg(long, required_unless_present = "registry")]
    pub target: Vec<SocketAddr>,
    /// Send the requests to the instances that a registry of this kind shows, in turn
    #[arg(long, value_enum, value_name = "KIND", conflicts_with_all = ["target", "health_port"])]
    #[arg(requires_all = ["registry_address", "service"])]
    pub registry: Option<RegistryKind>,
    /// Address of the registry; several are read in this order until one answers
    #[arg(long, value_name = "ADDRESS", requires = "registry")]
    pub registry_address: Vec<String>,
    /// Name of the service in the registry
    #[arg(long, value_name = "NAME", requires = "registry")]
    pub service: Option<String>,
    /// Seconds between two reads of the registry, at least 1
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = whole_seconds, requires = "registry")]
    pub cache: Duration,
    /// Seconds after which a list of the registry is too old to be used: requests wait for the next one, unless none is
    /// read within the timeout
    #[arg(long, value_name = "SECONDS", value_parser = whole_seconds, requires = "registry")]
    pub max_age: Option<Duration>,
    /// Port of the targets at which `GET /healthz` says with status 200 whether a target may get new connections
    #[arg(long, value_name = "PORT")]
    pub health_port: Option<u16>,
    /// Milliseconds between two health checks of a target; the first failed one takes it out, the first good one back
    #[arg(long, default_value = "500", value_parser = milliseconds)]
    pub health_interval: Duration,
    /// Path of the requests
    #[arg(long, default_value = "/")]
    pub path: String,
    /// Kind of connections; given twice, both kinds run at the same time, each at the full rate
    #[arg(long, value_enum, default_values = ["new"])]
    pub connections: Vec<Connections>,
    /// Requests per second
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rate: u32,
    /// Number of connections that are kept alive
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub pool: u16,
    /// Milliseconds after which a request without a complete response fails
    #[arg(long, default_value = "5000", value_parser = milliseconds)]
    pub timeout: Duration,
    /// Seconds to wait for a first good response before the load begins: a new Service is not known everywhere at
    /// once
    #[arg(long, default_value = "0", value_parser = seconds)]
    pub await_first: Duration,
    /// Seconds after which the load ends by itself
    #[arg(long, default_value = "600", value_parser = seconds)]
    pub longest: Duration,
    /// Address of the control port with /report and /stop
    #[arg(long)]
    pub control: SocketAddr,
}

fn milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}

fn seconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_secs)
}

/// An interval of zero would never pause.
fn whole_seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_given_or_discovered() {
        let parse = |args: &str| {
            let args = ["x", "--control", "127.0.0.1:0"].into_iter().chain(args.split_whitespace());
            ClientArgs::try_parse_from(args)
        };
        let args =
            parse("--registry zookeeper --registry-address a:2181 --registry-address b:2181 --service web");
        let args = args.unwrap();
        assert_eq!(args.registry, Some(RegistryKind::ZooKeeper));
        assert_eq!((args.registry_address.len(), args.cache), (2, Duration::from_secs(5)));
        assert!(parse("--target 10.0.0.1:80").is_ok());
        for bad in [
            "",
            "--registry nacos --registry-address http://n:8848",
            "--registry nacos --service web",
            "--registry nacos --registry-address http://n:8848 --service web --target 10.0.0.1:80",
            "--registry nacos --registry-address http://n:8848 --service web --health-port 80",
            "--registry nacos --registry-address http://n:8848 --service web --cache 0",
            "--registry bonjour --registry-address http://n:8848 --service web",
            "--target 10.0.0.1:80 --service web",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
