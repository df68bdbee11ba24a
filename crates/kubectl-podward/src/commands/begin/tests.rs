use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use hyper::{Method, StatusCode};
use podward_support::api_answers::{failure, json_answer};

use super::signals::PlannedInterruptions;
use super::*;
use crate::api_server;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    begin: Begin,
}

fn begin(line: &str) -> Begin {
    Line::try_parse_from(std::iter::once("begin").chain(line.split_whitespace())).unwrap().begin
}

fn pod(operation_type: Option<&str>) -> Value {
    let mut labels = json!({"kusionstack.io/control": "true"});
    if let Some(operation_type) = operation_type {
        labels[Stage::Operating.key("kubectl")] = json!("1");
        labels[Stage::OperationType.key("kubectl")] = json!(operation_type);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1", "labels": labels},
    })
}

/// What came of a command line.
struct Ran {
    ended: Result<ExitCode>,
    /// The writes of the pod.
    writes: usize,
}

/// Runs a command line on a pod that has an operation of this type, or none. The API server denies watches, or never answers
/// them.
async fn ran(line: &str, before: Option<&'static str>, denies: bool, interruptions: &[Interruption]) -> Ran {
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let client = api_server::client(move |request| {
        if request.method() == Method::PATCH {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        if request.uri().path() == "/api/v1/namespaces/shop/pods/web" {
            let is_announced = counted.load(Ordering::Relaxed) > 0;
            return Some(json_answer(&pod(before.or(is_announced.then_some("restart")))));
        }
        denies.then(|| failure(StatusCode::FORBIDDEN, "Forbidden"))
    });
    let mut interruptions = PlannedInterruptions(interruptions.to_vec());
    let ended = begin(line).run_until(client, &mut interruptions).await;
    Ran { ended, writes: writes.load(Ordering::Relaxed) }
}

#[tokio::test]
async fn a_command_does_not_join_the_operation_of_somebody_else() {
    let error = ran("web -- true", Some("restart"), false, &[]).await.ended.unwrap_err().to_string();
    assert_eq!(
        error,
        "pod shop/web has an operation kubectl (restart) already: choose another --id, or wait until it has ended"
    );
    let other = ran("web --wait", Some("update"), false, &[]).await;
    assert!(other.ended.is_err() && other.writes == 0);
}

#[tokio::test]
async fn only_an_operation_that_this_run_has_announced_is_cancelled() {
    let ours = ran("web --wait", None, true, &[]).await;
    assert!(ours.ended.is_err());
    assert_eq!(ours.writes, 2, "it is announced and cancelled");
    let joined = ran("web --wait", Some("restart"), true, &[]).await;
    let error = format!("{:#}", joined.ended.unwrap_err());
    assert!(
        error.starts_with("operation kubectl of pod shop/web is not cancelled: it had begun before: "),
        "{error}"
    );
    assert_eq!(joined.writes, 0);
}

#[tokio::test]
async fn an_interrupted_wait_cancels_the_operation_that_it_has_announced() {
    for (interruption, code) in
        [(Interruption::Interrupt, 130), (Interruption::Terminate, 143), (Interruption::Hangup, 129)]
    {
        for (before, writes) in [(None, 2), (Some("restart"), 0)] {
            let ran = ran("web --wait", before, false, &[interruption]).await;
            let code = format!("{:?}", ExitCode::from(code));
            assert_eq!((format!("{:?}", ran.ended.unwrap()), ran.writes), (code, writes), "{interruption:?}");
        }
    }
}
