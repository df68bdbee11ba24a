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

    #[tokio::test]
    async fn all_namespaces_are_not_one() {
        let line = ["kubectl-podward", "-n", "shop", "release", "--all", "--yes"];
        let error = match PluginArgs::try_parse_from(line) {
            Ok(parsed) => match parsed.command {
                PluginCommand::Release(release) => {
                    release.run(crate::api_server::client(|_| None)).await.unwrap_err()
                }
                other => panic!("{other:?}"),
            },
            Err(error) => error.into(),
        };
        assert!(error.is::<clap::Error>(), "{error}");
    }
}
