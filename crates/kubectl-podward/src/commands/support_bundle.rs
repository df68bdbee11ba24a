//! `kubectl podward support-bundle`: what a developer of Podward needs to understand a problem, without secrets.

mod archive;
mod names;
mod objects;
mod redact;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use kube::Client;

use archive::Archive;

/// Collect what is needed to understand a problem into a file, without secrets
///
/// Contains: the versions of Kubernetes and of this plugin, nodes (conditions, taints, versions), Podward's
/// Deployments, pods, events, Leases and logs, also those of its containers before a restart; all webhook
/// configurations, LifecycleHooks, PodTransitionRules, DiscoveryBindings, ClusterRegistries and CloneSets (without pod
/// templates) of the cluster, also those of others; and opted-in pods (metadata of the protocol, node, readiness gates,
/// grace period, status). Secrets and ConfigMaps are not read, nor what else runs in Podward's namespace. Values of
/// environment variables, of HTTP headers and of parameters of rules, bodies of HTTP registries, the command lines of
/// containers of others, the secret paths of the webhooks and annotations of others are removed. Look through it before
/// you send it: names of your workloads and messages of your hooks are in it. What could not be read is in errors.txt.
///
/// Exit code: 0 if the file was written, also if something could not be read; 1 otherwise.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  kubectl podward support-bundle && tar tzf podward-support-*.tar.gz")]
pub(crate) struct SupportBundle {
    /// Podward's namespace
    #[arg(
        long,
        short,
        env = "PODWARD_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "podward-system"
    )]
    namespace: String,
    /// The file [default: podward-support-TIME.tar.gz in the working directory]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The number of last lines of each log
    #[arg(long, value_name = "LINES", default_value_t = 2_000)]
    log_lines: u32,
}

impl SupportBundle {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let name = format!("podward-support-{}", Timestamp::now().strftime("%Y%m%dT%H%M%SZ"));
        let path = self.output.unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
        let mut archive = Archive::create(&path, &name)?;
        let mut errors = String::new();
        let objects = objects::collect(&client, &self.namespace, self.log_lines).await;
        for (file, content) in objects {
            match content {
                Ok(text) => archive.add(&file, &text)?,
                Err(error) => errors.push_str(&format!("{file}: {error:#}\n")),
            }
        }
        archive.add("errors.txt", &errors)?;
        archive.finish()?;
        eprint!("{errors}");
        println!("{}", path.display());
        Ok(ExitCode::SUCCESS)
    }
}
