//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;

/// An example of a hook server for Podward
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// The address that this server listens on
    #[arg(long, default_value = "0.0.0.0:9445")]
    pub(crate) bind: SocketAddr,
    /// PEM certificate of this server
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: PathBuf,
    /// PEM private key of this server
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: PathBuf,
    /// The file for the backends of the balancer, written by this program
    #[arg(long, value_name = "FILE")]
    pub(crate) backends: PathBuf,
    /// The file with the state of the balancer, written by the balancer
    #[arg(long, value_name = "FILE")]
    pub(crate) report: PathBuf,
    /// The only user that may call, for example `system:serviceaccount:podward-system:lifecycle-controller`. By
    /// default, all users may call
    #[arg(long, value_name = "USER")]
    pub(crate) caller: Option<String>,
    /// The gRPC address of Podward, `https://HOST:PORT`. Without it, register the hook by kubectl
    #[arg(long, value_name = "URL", requires_all = ["podward_ca", "token_file", "url", "ca"])]
    pub(crate) podward: Option<String>,
    /// PEM certificates of the authorities of Podward's certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) podward_ca: Option<PathBuf>,
    /// The token that authenticates this program to Podward
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The URL at which Podward reaches this server, `https://HOST:PORT`
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// PEM certificates of the authorities of this server's certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The name of the hook. The caller's token must have the audience `podward.io/hooks/NAME`
    #[arg(long, default_value = "example-balancer")]
    pub(crate) hook_name: String,
    /// A label of the pods that the hook selects. Can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) pod_label: Vec<(String, String)>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}
