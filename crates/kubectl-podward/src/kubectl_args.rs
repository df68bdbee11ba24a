//! The flags of kubectl that every command takes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use podward_runtime::client;

use crate::connection::quoted;

/// The cluster and the user of the requests.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct KubectlArgs {
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Options of kubectl")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Options of kubectl")]
    context: Option<String>,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER", help_heading = "Options of kubectl")]
    user: Option<String>,
    /// Group to impersonate; can be given several times
    #[arg(
        long = "as-group",
        global = true,
        value_name = "GROUP",
        requires = "user",
        help_heading = "Options of kubectl"
    )]
    groups: Vec<String>,
}

impl KubectlArgs {
    /// Returns the arguments that these values of flags make, by the names of the fields. A group needs a user.
    pub(crate) fn of_flags(flags: &BTreeMap<String, String>) -> Self {
        Self {
            kubeconfig: flags.get("kubeconfig").map(PathBuf::from),
            context: flags.get("context").cloned(),
            user: flags.get("user").cloned(),
            groups: flags.get("groups").cloned().into_iter().collect(),
        }
    }

    /// Returns the options that were given, each after a space and quoted for a shell.
    pub(crate) fn options(&self) -> String {
        let file = self.kubeconfig.as_ref().map(|file| file.display().to_string());
        let given = [("kubeconfig", &file), ("context", &self.context), ("as", &self.user)];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let groups = self.groups.iter().map(|group| ("as-group", group));
        given.chain(groups).map(|(name, value)| format!(" --{name}={}", quoted(value))).collect()
    }

    /// Returns a client for the cluster.
    ///
    /// # Errors
    /// When there is no configuration that can be used.
    pub(crate) async fn client(&self) -> Result<Client> {
        let mut config = match (&self.kubeconfig, &self.context) {
            (None, None) => Config::infer().await.context(
                "found no configuration for the API server: give --kubeconfig, or run in a pod with a service account",
            )?,
            (file, context) => {
                let kubeconfig = match file {
                    Some(path) => Kubeconfig::read_from(path),
                    None => Kubeconfig::read(),
                };
                let name = file.as_ref().map_or_else(String::new, |path| format!(" {}", path.display()));
                let failed = || format!("could not use the kubeconfig{name}");
                let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
                let kubeconfig = kubeconfig.with_context(failed)?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(failed)?
            }
        };
        if self.user.is_some() {
            config.auth_info.impersonate = self.user.clone();
            config.auth_info.impersonate_groups = (!self.groups.is_empty()).then(|| self.groups.clone());
        }
        Ok(client::with_config(client::prepared(config, "kubectl", env!("CARGO_PKG_VERSION"))?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_that_were_given() {
        let flags = [("context", "prod"), ("user", "jane doe"), ("groups", "ops")];
        let flags = flags.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = KubectlArgs::of_flags(&flags.into()).options();
        assert_eq!(options, " --context=prod --as='jane doe' --as-group=ops");
        assert_eq!(KubectlArgs::default().options(), "");
    }
}
