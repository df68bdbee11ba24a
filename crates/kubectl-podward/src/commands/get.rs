//! `kubectl podward get`: the pods that wait, one line each, and totals.

mod row;
mod table;
mod watch;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};

use crate::api::list_all;
use crate::clock::now;
use crate::object_target::one_namespace_or_all;
use crate::output::PodsOutput;
use row::PodRow;
use table::PodTable;

/// List the pods that wait: operation, phase, for how long, for whom, and until when
///
/// Lists opted-in pods that are not in service or have an operation, and totals of all opted-in pods: how many there are,
/// how many wait, how many wait longer than the deadline of a hook, and how many have no readiness gate, so that Podward
/// cannot take them out of service. Reads pods only, and changes nothing.
///
/// Exit code: 0 if the pods were listed; 1 if they cannot be read.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward get\n  kubectl podward get -A -w\n  kubectl podward get -l app=web\n  kubectl podward get -n shop -o json\n  kubectl podward get -o name | xargs -n 1 kubectl podward why"
)]
pub(crate) struct Get {
    /// All namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Only pods with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<String>,
    /// The namespace [default: the namespace of the kubeconfig's context]
    #[arg(long, short)]
    namespace: Option<String>,
    /// Show changes until interrupted: the table is redrawn on a terminal, and changed lines are appended otherwise
    #[arg(long, short, conflicts_with = "output")]
    watch: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = PodsOutput::Text)]
    output: PodsOutput,
}

impl Get {
    /// Checks what clap does not.
    ///
    /// # Errors
    /// When the arguments do not go together. It is an error of the command line.
    pub(crate) fn check(&self) -> Result<(), clap::Error> {
        one_namespace_or_all(self.namespace.as_deref(), self.all_namespaces)
    }

    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let kind = ApiResource::erase::<ApiPod>(&());
        let api: Api<DynamicObject> = match (&self.namespace, self.all_namespaces) {
            (_, true) => Api::all_with(client, &kind),
            (Some(namespace), false) => Api::namespaced_with(client, namespace, &kind),
            (None, false) => Api::default_namespaced_with(client, &kind),
        };
        if self.watch {
            watch::run(api, &self.labels(), self.all_namespaces).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let now = now();
        let opted_in = ListParams::default().labels(&self.labels());
        let pods = list_all(&api, opted_in).await.context("list the opted-in pods")?;
        let rows = pods.into_iter().map(|pod| PodRow::of(&pod, now));
        let table = PodTable::new(rows.collect::<Result<Vec<_>>>()?, self.all_namespaces);
        self.output.print(&table, || table.text(now), table.names(), table::STYLE)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the selector of the pods.
    fn labels(&self) -> String {
        let opted_in = format!("{CONTROL_LABEL}={CONTROL_VALUE}");
        self.selector.iter().fold(opted_in, |all, more| format!("{all},{more}"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use clap::Parser;
    use podward_support::api_answers::json_answer;
    use serde_json::json;

    use super::*;
    use crate::api_server;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        get: Get,
    }

    #[tokio::test]
    async fn pods_are_selected_by_labels() {
        for (line, selector) in [
            ("get", "kusionstack.io%2Fcontrol%3Dtrue"),
            ("get -A -l app=web", "kusionstack.io%2Fcontrol%3Dtrue%2Capp%3Dweb"),
        ] {
            let asked = Arc::<Mutex<String>>::default();
            let query = Arc::clone(&asked);
            let client = api_server::client(move |request| {
                *query.lock().unwrap() = request.uri().query().unwrap_or_default().to_owned();
                Some(json_answer(&json!({"kind": "PodList", "metadata": {}, "items": []})))
            });
            Line::try_parse_from(line.split(' ')).unwrap().get.run(client).await.unwrap();
            let asked = asked.lock().unwrap();
            assert!(asked.split('&').any(|part| part == format!("labelSelector={selector}")), "{asked}");
        }
    }
}
