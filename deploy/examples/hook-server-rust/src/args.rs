//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;

/// An example of a hook server for Podward
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Where Podward's calls are taken
    #[arg(long, default_value = "0.0.0.0:9445")]
    pub(crate) bind: SocketAddr,
    /// PEM certificate of this server
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: PathBuf,
    /// PEM private key of this server
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: PathBuf,
    /// What the balancer is to serve: written here, read by the balancer
    #[arg(long, value_name = "FILE")]
    pub(crate) backends: PathBuf,
    /// What the balancer does: written by the balancer, read here
    #[arg(long, value_name = "FILE")]
    pub(crate) report: PathBuf,
    /// The user that may call, such as `system:serviceaccount:podward-system:lifecycle-controller`; anybody if not given
    #[arg(long, value_name = "USER")]
    pub(crate) caller: Option<String>,
    /// The audience that the caller's token has to be for
    #[arg(long, default_value = "podward-hooks", value_name = "NAME")]
    pub(crate) audience: String,
    /// Podward's gRPC address, `https://HOST:PORT`; without it this hook is registered by kubectl
    #[arg(long, value_name = "URL", requires_all = ["podward_ca", "token_file", "url", "ca"])]
    pub(crate) podward: Option<String>,
    /// PEM certificates that Podward's certificate is checked against
    #[arg(long, value_name = "FILE")]
    pub(crate) podward_ca: Option<PathBuf>,
    /// The token that says to Podward who this is
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Where Podward reaches this server, `https://HOST:PORT`
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// PEM certificates that this server's certificate is checked against
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The name of the hook
    #[arg(long, default_value = "example-balancer")]
    pub(crate) hook_name: String,
    /// A label of the pods that it is for; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) pod_label: Vec<(String, String)>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}
