//! Command line arguments.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use podward_runtime::args::{KubeArgs, ProcessArgs, TlsArgs};

/// Tells the traffic-controller which connections the pods of a node still have
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) kube: KubeArgs,
    /// User name of the traffic-controller, the only user that may call
    #[arg(
        long,
        env = "PODWARD_TRAFFIC_CONTROLLER_USER",
        default_value = "system:serviceaccount:podward-system:traffic-controller"
    )]
    pub(crate) traffic_controller_user: String,
    /// Address of the metrics of the node's kube-proxy
    #[arg(long, env = "PODWARD_KUBE_PROXY_ADDRESS", default_value = "127.0.0.1:10249")]
    pub(crate) kube_proxy_address: SocketAddr,
    /// Folder with the processes of the node
    #[arg(long, env = "PODWARD_PROC", default_value = "/proc", value_name = "FOLDER")]
    pub(crate) proc: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_parsed() {
        Args::command().debug_assert();
    }
}
