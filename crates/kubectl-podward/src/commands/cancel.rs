//! `kubectl podward cancel`: an operation is undone.

use std::cell::OnceCell;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::Args;
use kube::Client;
use podward_core::deletion::Withdrawal;
use podward_core::keys::{DELETE_OPERATION, Stage, TO_DELETE};
use podward_core::{Operations, Pod};
use serde_json::{Value, json};

use crate::operation::{Begun, PodClient, PodPlace};
use crate::terminal::say;

/// Cancel an operation: the pod goes back into service as it is
///
/// A deletion request is an operation, too: its id is pod-delete. It can be cancelled until it has its permission, also
/// while it is postponed.
///
/// Exit code: 0 if the operation is cancelled; 1 if there is none, or it cannot be cancelled.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward cancel web-0\n  kubectl podward cancel web-0 --id pod-delete"
)]
pub(crate) struct Cancel {
    #[command(flatten)]
    place: PodPlace,
    /// The id of the operation
    #[arg(long, default_value = "kubectl")]
    id: String,
}

impl Cancel {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let pod = PodClient::new(client, &self.place);
        match self.id.as_str() {
            DELETE_OPERATION => cancel_deletion(&pod).await?,
            id => cancel(&pod, id, None).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the label that cancels the operation. Its value is the type of the operation. It has to be `begun`, if that is
/// given.
pub(super) async fn cancel(pod: &PodClient, id: &str, begun: Option<&Begun>) -> Result<()> {
    pod.end(id, begun, |operations, _| {
        let of = operations.type_of(id)?;
        Some(Some(json!({Stage::UndoOperationType.key(id): of})))
    })
    .await?;
    say_cancelled(pod, id);
    Ok(())
}

/// Withdraws the deletion request of the pod, as `Lifecycle.Cancel` of the gRPC interface does. Without a request, undoes
/// the operation with which another operator announces that it deletes the pod itself.
async fn cancel_deletion(pod: &PodClient) -> Result<()> {
    let uid = OnceCell::new();
    pod.write(|found, unsure| {
        let (name, of) = (pod.full_name(), &found.metadata.uid);
        ensure!(
            uid.get_or_init(|| of.clone()) == of,
            "the deletion has ended: pod {name} is another pod now"
        );
        withdrawal(found, unsure, &name)
    })
    .await?;
    say_cancelled(pod, DELETE_OPERATION);
    Ok(())
}

/// Returns the change that withdraws the deletion request. `None` if an earlier write, whose answer is missing, has
/// done it.
///
/// # Errors
/// When there is no request and no operation, or the deletion cannot be cancelled any more.
fn withdrawal(pod: &Pod, unsure: bool, name: &str) -> Result<Option<Value>> {
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    match Withdrawal::of(&view, &operations) {
        Withdrawal::TooLate => {
            bail!(
                "the deletion of pod {name} cannot be cancelled any more: it has its permission, or has begun"
            )
        }
        Withdrawal::RemoveLabel => Ok(Some(json!({"labels": {TO_DELETE: null}}))),
        Withdrawal::NoRequest if unsure => Ok(None),
        Withdrawal::NoRequest => {
            let has_operation = operations.get(DELETE_OPERATION).is_some();
            ensure!(has_operation, "pod {name} has no deletion request, and no operation {DELETE_OPERATION}");
            let of = operations.type_name(DELETE_OPERATION);
            Ok(Some(json!({"labels": {Stage::UndoOperationType.key(DELETE_OPERATION): of}})))
        }
    }
}

fn say_cancelled(pod: &PodClient, id: &str) {
    say(&format!("operation {id} of pod {} is cancelled", pod.full_name()));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hyper::{Method, StatusCode};
    use podward_support::api_answers::{failure, json_answer};

    use super::*;
    use crate::api_server;

    /// Runs `cancel web --id pod-delete` on a pod with this metadata. The first write is stored, but not answered, if
    /// `is_lost`. Returns the error, and the labels afterwards.
    async fn cancelled(more: Value, is_lost: bool) -> (Option<String>, Value) {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1",
            "labels": {"kusionstack.io/control": "true"},
        }});
        json_patch::merge(&mut pod, &json!({"metadata": more}));
        let pod = Arc::new(Mutex::new((pod, is_lost)));
        let stored = Arc::clone(&pod);
        let client = api_server::client(move |request| {
            let (pod, is_lost) = &mut *stored.lock().unwrap();
            if request.method() == Method::PATCH {
                json_patch::merge(pod, &serde_json::from_slice(request.body()).unwrap());
                if std::mem::take(is_lost) {
                    return Some(failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"));
                }
            }
            Some(json_answer(pod))
        });
        let place = PodPlace { pod: "web".to_owned(), namespace: None };
        let ended = Cancel { place, id: DELETE_OPERATION.to_owned() }.run(client).await;
        let labels = pod.lock().unwrap().0["metadata"]["labels"].clone();
        (ended.err().map(|error| format!("{error:#}")), labels)
    }

    fn request(not_before: Value) -> Value {
        let request =
            json!({"kind": "Evict", "requestedBy": "jane", "requestedAt": 7, "notBefore": not_before});
        json!({"annotations": {"podward.io/deletion-request": request.to_string()}, "labels": {TO_DELETE: "7"}})
    }

    #[tokio::test]
    async fn a_deletion_request_is_withdrawn_also_while_it_is_postponed() {
        let label_alone = json!({"labels": {TO_DELETE: "7"}});
        let mut begun = request(Value::Null);
        begun["labels"][Stage::Operating.key(DELETE_OPERATION)] = "7".into();
        begun["labels"][Stage::OperationType.key(DELETE_OPERATION)] = "delete".into();
        for of in [request(json!(9)), label_alone, begun] {
            for is_lost in [false, true] {
                let (error, labels) = cancelled(of.clone(), is_lost).await;
                assert_eq!(error, None, "{of}");
                assert!(labels.get(TO_DELETE).is_none(), "{of}: {labels}");
            }
        }
        let (error, _) = cancelled(json!({}), false).await;
        assert_eq!(error.unwrap(), "pod shop/web has no deletion request, and no operation pod-delete");
    }

    #[tokio::test]
    async fn a_deletion_that_has_its_permission_is_not_cancelled() {
        let mut permitted = request(Value::Null);
        permitted["labels"][Stage::Operating.key(DELETE_OPERATION)] = "7".into();
        permitted["labels"][Stage::Operate.key(DELETE_OPERATION)] = "8".into();
        let mut terminating = request(Value::Null);
        terminating["deletionTimestamp"] = "2026-01-01T10:00:00Z".into();
        for of in [permitted, terminating] {
            let (error, labels) = cancelled(of.clone(), false).await;
            let error = error.unwrap_or_default();
            assert!(
                error.starts_with("the deletion of pod shop/web cannot be cancelled any more"),
                "{error}"
            );
            assert_eq!(labels[TO_DELETE], "7", "{of}");
            assert!(labels.get(Stage::UndoOperationType.key(DELETE_OPERATION)).is_none(), "{labels}");
        }
    }

    #[tokio::test]
    async fn a_deletion_by_another_operator_is_undone() {
        let labels = json!({
            Stage::Operating.key(DELETE_OPERATION): "7", Stage::OperationType.key(DELETE_OPERATION): "scale-in",
        });
        let (error, labels) = cancelled(json!({"labels": labels}), false).await;
        assert_eq!(error, None);
        assert_eq!(labels[Stage::UndoOperationType.key(DELETE_OPERATION)], "scale-in");
    }
}
