//! `kubectl podward break-glass`: a pod that may be deleted at once, on record.

use std::cell::Cell;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use kube::Client;
use podward_core::keys::BREAK_GLASS;
use serde_json::json;

use crate::operation::{PodClient, PodPlace};
use crate::terminal::say;

/// Allow a pod to be deleted at once, although traffic sources still use it
///
/// Requests that are sent to the pod are lost. The reason is stored on the pod, and an event says who has given it. The pod
/// is not deleted by this command: delete or evict it afterwards. Needs the right to use the verb break-glass on pods of
/// podward.io.
///
/// With --undo, the pod is held again.
///
/// Exit code: 0 if the pod was written, or has no reason that could be removed; 1 otherwise.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward break-glass web-0 --reason 'INC-1234: node is on fire' && kubectl delete pod web-0\n  kubectl podward break-glass web-0 --undo",
    group = clap::ArgGroup::new("what").required(true).args(["reason", "undo"])
)]
pub(crate) struct BreakGlass {
    #[command(flatten)]
    place: PodPlace,
    /// Why, for those who ask later
    #[arg(long)]
    reason: Option<String>,
    /// Hold the pod again: remove the reason
    #[arg(long)]
    undo: bool,
}

impl BreakGlass {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let is_empty = self.reason.as_ref().is_some_and(|reason| reason.trim().is_empty());
        ensure!(!is_empty, "the reason is empty: say why, for those who ask later");
        let pod = PodClient::new(client, &self.place).once();
        let metadata = json!({"annotations": {BREAK_GLASS: self.reason}});
        let is_there = Cell::new(true);
        pod.write(|found, _| {
            if self.undo {
                let name = pod.full_name();
                ensure!(!found.view().terminating, "pod {name} is not held again: its deletion has begun");
                is_there.set(found.metadata.annotations.break_glass.is_some());
            }
            Ok(is_there.get().then(|| metadata.clone()))
        })
        .await?;
        match self.undo {
            true if !is_there.get() => {
                say(&format!(
                    "pod {} has no break-glass annotation: there is nothing to undo",
                    pod.full_name()
                ));
            }
            true => say(&format!("pod {} is held again", pod.full_name())),
            false => say(&format!(
                "pod {} may be deleted at once, and requests to it are lost then: kubectl delete pod {} -n {}",
                pod.full_name(),
                self.place.pod,
                pod.namespace()
            )),
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use hyper::{Method, StatusCode};
    use podward_support::api_answers::{failure, json_answer};
    use serde_json::Value;

    use super::*;
    use crate::api_server;

    #[tokio::test]
    async fn a_write_is_not_repeated() {
        let writes = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&writes);
        let labels = json!({"kusionstack.io/control": "true"});
        let metadata =
            json!({"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1", "labels": labels});
        let client = api_server::client(move |request| {
            if request.method() == Method::PATCH {
                counted.fetch_add(1, Ordering::Relaxed);
                return Some(failure(StatusCode::GATEWAY_TIMEOUT, "Timeout"));
            }
            Some(json_answer(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})))
        });
        let place = PodPlace { pod: "web".to_owned(), namespace: None };
        let ended = BreakGlass { place, reason: Some("INC-1".to_owned()), undo: false }.run(client).await;
        assert!(
            ended.is_err() && writes.load(Ordering::Relaxed) == 1,
            "the next write may reach another pod"
        );
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        break_glass: BreakGlass,
    }

    fn parse(line: &str) -> Result<BreakGlass, clap::Error> {
        <Line as clap::Parser>::try_parse_from(line.split(' ')).map(|line| line.break_glass)
    }

    /// Runs `break-glass web --undo` on a pod with this metadata. Returns whether it did not fail, and the metadata that
    /// was written.
    async fn undone(more: Value) -> (bool, Vec<Value>) {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1",
            "labels": {"kusionstack.io/control": "true"},
        }});
        json_patch::merge(&mut pod, &json!({"metadata": more}));
        let written = Arc::<Mutex<Vec<Value>>>::default();
        let writes = Arc::clone(&written);
        let client = api_server::client(move |request| {
            if request.method() == Method::PATCH {
                let patch: Value = serde_json::from_slice(request.body()).unwrap();
                writes.lock().unwrap().push(patch["metadata"]["annotations"].clone());
            }
            Some(json_answer(&pod))
        });
        let ended = parse("break-glass web --undo").unwrap().run(client).await;
        let written = written.lock().unwrap().clone();
        (ended.is_ok(), written)
    }

    #[tokio::test]
    async fn it_is_undone() {
        for line in ["break-glass web", "break-glass web --undo --reason x"] {
            assert!(parse(line).is_err(), "{line}");
        }
        let annotations = json!({BREAK_GLASS: "INC-1"});
        let removed = vec![json!({BREAK_GLASS: null})];
        assert_eq!(undone(json!({"annotations": annotations})).await, (true, removed));
    }

    #[tokio::test]
    async fn what_cannot_be_undone_is_not_written() {
        assert_eq!(undone(json!({})).await, (true, vec![]), "there is nothing to undo");
        let annotations = json!({BREAK_GLASS: "INC-1"});
        let terminating = json!({"annotations": annotations, "deletionTimestamp": "2026-01-01T10:00:00Z"});
        assert_eq!(undone(terminating).await, (false, vec![]));
    }
}
