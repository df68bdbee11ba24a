//! Command line.

use std::{net::SocketAddr, time::Duration};

use clap::Parser;

use crate::report::Connections;

/// Sends requests to a Service and counts the lost ones
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct ClientArgs {
    /// Address and port of the Service; several are used in turn, like the nodes behind a load balancer
    #[arg(long, required = true)]
    pub target: Vec<SocketAddr>,
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
