//! `kubectl podward release`.

mod events;
mod pass;
mod patch;
mod stop;
mod tally;
mod write;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use kube::Client;
use podward_core::release::ThirdParties;
use podward_runtime::args::seconds;
use tokio::time::Instant;

use pass::Targets;
use stop::Installation;
use tally::Tally;
use write::Writer;

/// Take off pods what would wedge them without Podward, before it is uninstalled or after
///
/// Finalizers of hooks go, readiness gates open, recorded deletions are dropped (the pods live on until they are deleted again), and
/// so does everything else that only Podward writes. Announcements of operations stay. Nobody is asked to let go of the pods: what
/// sends them traffic goes on sending it.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true).args(["all", "namespace", "pods"]))]
pub(crate) struct Release {
    /// All pods of the cluster
    #[arg(long, conflicts_with_all = ["namespace", "pods"])]
    all: bool,
    /// All pods of this namespace, or the namespace of those that are named
    #[arg(long, short)]
    namespace: Option<String>,
    /// Single pods, of the namespace of the kubeconfig's context when none is given
    #[arg(value_name = "POD")]
    pods: Vec<String>,
    /// Stop Podward first: delete its webhook configurations, and scale its controllers to zero. Otherwise it must be stopped already
    #[arg(long, conflicts_with_all = ["namespace", "pods"])]
    stop_services: bool,
    /// Where Podward is, or was
    #[arg(long, env = "PODWARD_NAMESPACE", value_name = "NAMESPACE", default_value = "podward-system")]
    podward_namespace: String,
    /// Remove the finalizers of third parties, too, which they remove by themselves otherwise: for those that don't exist any more
    #[arg(long)]
    third_party_finalizers: bool,
    /// Only print what would be done
    #[arg(long)]
    dry_run: bool,
    /// Seconds for all of it
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    timeout: Duration,
}

impl Release {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let deadline = Instant::now() + self.timeout;
        let installation = Installation::new(client.clone(), &self.podward_namespace);
        if self.stop_services && self.dry_run {
            println!("would stop Podward: {}", installation.what_is_stopped());
        } else if self.stop_services {
            installation.stop(deadline).await?;
        } else if !self.dry_run
            && let Some(at_work) = installation.at_work().await?
        {
            bail!(
                "Podward is at work ({at_work}) and would take the pods in again at once; stop it with --all --stop-services, \
                 or take the label kusionstack.io/control off the pods: then it releases them by itself"
            );
        }
        let third_parties =
            if self.third_party_finalizers { ThirdParties::Remove } else { ThirdParties::Keep };
        let targets = Targets::new(&client, self.namespace, self.pods);
        let writer = Writer::new(client, third_parties, self.dry_run);
        let mut tally = Tally::default();
        let passes = pass::until_nothing_is_left(&targets, &writer, &mut tally);
        let ended = tokio::time::timeout_at(deadline, passes).await;
        print!("{}", tally.summary(self.dry_run));
        match ended {
            Ok(Ok(())) => Ok(if tally.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }),
            Ok(Err(error)) => Err(error),
            Err(_) => bail!(
                "not all pods were looked at within {:?}; run it again, with a longer --timeout for a large cluster",
                self.timeout
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        release: Release,
    }

    fn is_taken(line: &str) -> bool {
        Line::try_parse_from(std::iter::once("release").chain(line.split_whitespace())).is_ok()
    }

    #[test]
    fn what_is_released_has_to_be_said() {
        for line in ["--all", "--all --stop-services --dry-run", "-n shop", "-n shop web-0 web-1", "web-0"] {
            assert!(is_taken(line), "{line}");
        }
        for line in ["", "--stop-services", "--all -n shop", "--all web-0", "-n shop --stop-services"] {
            assert!(!is_taken(line), "{line}");
        }
    }
}
