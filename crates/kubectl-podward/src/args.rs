//! The command line.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Arg, CommandFactory, Parser};

use crate::commands::PluginCommand;
use crate::connection::set_options;
use crate::kubectl_args::KubectlArgs;

/// Explain, operate, check and release the pods that Podward manages
#[derive(Debug, Parser)]
#[command(version, bin_name = "kubectl podward", arg = namespace())]
pub struct PluginArgs {
    #[command(flatten)]
    kubectl: KubectlArgs,
    #[command(subcommand)]
    command: PluginCommand,
}

impl PluginArgs {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        set_options(self.kubectl.options());
        self.command.run(Self::command(), &self.kubectl).await
    }
}

/// The flag of the commands that have a namespace, before the name of the command. They read it themselves: clap copies
/// the value of a global flag to the flags with its name.
fn namespace() -> Arg {
    Arg::new("namespace").long("namespace").short('n').global(true).hide(true).value_name("NAMESPACE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_go_together() {
        PluginArgs::command().debug_assert();
    }

    #[test]
    fn a_namespace_can_come_before_the_command() {
        for line in [
            "-n shop why web-0",
            "why web-0 -n shop",
            "--namespace=shop begin web-0",
            "-n shop doctor",
            "-n shop release web-0",
            "-n shop support-bundle",
        ] {
            let parsed = PluginArgs::try_parse_from(["kubectl-podward"].into_iter().chain(line.split(' ')));
            let shown = format!("{:?}", parsed.unwrap());
            assert!(
                shown.contains("namespace: Some(\"shop\")") || shown.contains("namespace: \"shop\""),
                "{shown}"
            );
        }
    }

    /// Runs a command line without a cluster, and returns its error.
    async fn error(line: &str) -> anyhow::Error {
        let line = ["kubectl-podward", "--kubeconfig=/none"].into_iter().chain(line.split(' '));
        match PluginArgs::try_parse_from(line) {
            Ok(parsed) => parsed.command.run(PluginArgs::command(), &parsed.kubectl).await.unwrap_err(),
            Err(error) => error.into(),
        }
    }

    #[tokio::test]
    async fn a_wrong_command_line_is_refused_before_a_cluster_is_needed() {
        for line in [
            "-n shop release --all --yes",
            "-n shop release --all --stop-services",
            "-n shop release --stop-services",
            "-n shop get -A",
            "get -A -n shop",
            "-n shop why -A",
            "release",
            "release discoverybinding/web web-0",
            "trace node/n1",
            "trace deploy/web --watch",
        ] {
            let error = error(line).await;
            assert!(error.is::<clap::Error>(), "{line}: {error}");
        }
        for line in ["-n shop release", "-n shop release web-0", "-n shop get", "get -A", "why -A"] {
            let error = error(line).await;
            assert!(error.to_string().contains("could not use the kubeconfig /none"), "{line}: {error}");
        }
    }
}
