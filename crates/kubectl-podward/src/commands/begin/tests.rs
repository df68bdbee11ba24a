use std::future::pending;
use std::sync::{Arc, Mutex};

use clap::Parser;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use podward_support::api_answers::{Answer, failure, json_answer};

use super::signals::{Interruption, PlannedInterruptions};
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

/// What the API server answers to lists and watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watches {
    /// Nothing.
    #[default]
    Silent,
    /// An error that stays.
    Denied,
    /// The pod, with the permission of its operation.
    Permitted,
}

/// An API server with one pod.
#[derive(Debug, Default)]
struct Server {
    pod: Value,
    watches: Watches,
    /// The writes that it has received.
    writes: usize,
    /// Applied to the pod after the permission was seen.
    then: Value,
    is_permitted: bool,
    /// The next writes of these numbers fail, and are applied all the same or not.
    failing: Vec<(std::ops::Range<usize>, bool)>,
    /// Applied to the pod after a write that fails.
    after_failure: Option<Value>,
    /// As many reads fail after the permission.
    failing_reads: usize,
}

fn unavailable() -> Answer {
    failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
}

impl Server {
    /// With a pod that has an operation of this type, or none.
    fn new(operation_type: Option<&str>) -> Self {
        let mut labels = json!({"kusionstack.io/control": "true"});
        if let Some(operation_type) = operation_type {
            labels[Stage::Operating.key("kubectl")] = json!("1");
            labels[Stage::OperationType.key("kubectl")] = json!(operation_type);
        }
        let metadata =
            json!({"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1", "labels": labels});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        Self { pod, ..Self::default() }
    }

    fn permitting() -> Self {
        Self { watches: Watches::Permitted, then: json!({}), ..Self::new(None) }
    }

    fn answer(&mut self, request: &Request<Bytes>) -> Option<Answer> {
        if request.uri().path() != "/api/v1/namespaces/shop/pods/web" {
            return match self.watches {
                Watches::Silent => None,
                Watches::Denied => Some(failure(StatusCode::FORBIDDEN, "Forbidden")),
                Watches::Permitted => {
                    self.pod["metadata"]["labels"][Stage::Operate.key("kubectl")] = json!("2");
                    self.is_permitted = true;
                    let items = json!([self.pod]);
                    json_patch::merge(&mut self.pod, &self.then);
                    let list =
                        json!({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": items});
                    Some(json_answer(&list))
                }
            };
        }
        if request.method() == Method::PATCH {
            self.writes += 1;
            let failing = self.failing.iter().find(|(writes, _)| writes.contains(&self.writes)).cloned();
            if failing.as_ref().is_none_or(|(_, is_applied)| *is_applied) {
                json_patch::merge(&mut self.pod, &serde_json::from_slice(request.body()).unwrap());
            }
            if failing.is_some() {
                if let Some(after) = &self.after_failure {
                    json_patch::merge(&mut self.pod, after);
                }
                return Some(unavailable());
            }
        } else if self.is_permitted && self.failing_reads > 0 {
            self.failing_reads -= 1;
            return Some(unavailable());
        }
        Some(json_answer(&self.pod))
    }
}

/// What came of a command line.
struct Ran {
    ended: Result<ExitCode>,
    server: Server,
}

impl Ran {
    fn code(self) -> String {
        format!("{:?}", self.ended.unwrap())
    }

    fn error(&self) -> String {
        format!("{:#}", self.ended.as_ref().unwrap_err())
    }

    fn label(&self, stage: Stage) -> &Value {
        &self.server.pod["metadata"]["labels"][stage.key("kubectl")]
    }
}

fn code(code: u8) -> String {
    format!("{:?}", ExitCode::from(code))
}

/// What an interruption comes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum During {
    /// The announcement, before anything is sent.
    Start,
    /// The announcement, after its first write.
    Announcement,
    Wait,
    Command,
}

/// Interruptions, the last one first.
struct Later {
    during: During,
    /// How often somebody has waited for one.
    asked: usize,
    server: Arc<Mutex<Server>>,
    planned: PlannedInterruptions,
}

impl Interruptions for Later {
    async fn next(&mut self) -> Interruption {
        self.asked += 1;
        let first = match self.during {
            During::Start | During::Announcement => 1,
            During::Wait => 2,
            During::Command => 3,
        };
        if self.asked < first {
            return pending().await;
        }
        while self.during == During::Announcement && self.server.lock().unwrap().writes == 0 {
            tokio::task::yield_now().await;
        }
        self.planned.next().await
    }
}

/// Runs a command line.
async fn run(line: Begin, server: Server, interruptions: &[Interruption], during: During) -> Ran {
    let server = Arc::new(Mutex::new(server));
    let planned = PlannedInterruptions(interruptions.to_vec());
    let mut later = Later { during, asked: 0, server: Arc::clone(&server), planned };
    let ended = line.run_until(client(&server), &mut later).await;
    let server = std::mem::take(&mut *server.lock().unwrap());
    Ran { ended, server }
}

fn client(server: &Arc<Mutex<Server>>) -> Client {
    let answering = Arc::clone(server);
    api_server::client(move |request| answering.lock().unwrap().answer(request))
}

async fn ran(line: &str, server: Server) -> Ran {
    run(begin(line), server, &[], During::Wait).await
}

#[tokio::test]
async fn a_command_does_not_join_the_operation_of_somebody_else() {
    let joined = ran("web -- true", Server::new(Some("restart"))).await;
    assert_eq!(
        joined.error(),
        "pod shop/web has an operation kubectl (restart) already: choose another --id, or wait until it has ended"
    );
    let other = ran("web --wait", Server::new(Some("update"))).await;
    assert!(other.ended.is_err() && other.server.writes == 0);
}

#[tokio::test]
async fn only_an_operation_that_this_run_has_announced_is_cancelled() {
    let denying = |before| Server { watches: Watches::Denied, ..Server::new(before) };
    let ours = ran("web --wait", denying(None)).await;
    assert!(ours.ended.is_err());
    assert_eq!(ours.server.writes, 2, "it is announced and cancelled");
    let joined = ran("web --wait", denying(Some("restart"))).await;
    let error = joined.error();
    assert!(
        error.starts_with("operation kubectl of pod shop/web is not cancelled: it had begun before: "),
        "{error}"
    );
    assert_eq!(joined.server.writes, 0);
}

#[tokio::test]
async fn an_interrupted_wait_cancels_the_operation_that_it_has_announced() {
    for (interruption, number) in
        [(Interruption::Interrupt, 130), (Interruption::Terminate, 143), (Interruption::Hangup, 129)]
    {
        for (before, writes) in [(None, 2), (Some("restart"), 0)] {
            let ran = run(begin("web --wait"), Server::new(before), &[interruption], During::Wait).await;
            assert_eq!(ran.server.writes, writes, "{interruption:?}");
            assert_eq!(ran.code(), code(number), "{interruption:?}");
        }
    }
}

#[tokio::test]
async fn an_announcement_whose_answer_is_missing_is_recognised() {
    let server = Server { failing: vec![(1..2, true)], ..Server::new(None) };
    let ran = run(begin("web -- true"), server, &[Interruption::Terminate], During::Wait).await;
    assert_eq!(ran.label(Stage::UndoOperationType), "restart");
    assert_eq!((ran.server.writes, ran.code()), (2, code(143)), "it is announced once, and cancelled");
}

#[tokio::test]
async fn an_operation_is_ended_after_failures_that_pass() {
    let server = || Server { failing: vec![(2..6, false)], failing_reads: 3, ..Server::permitting() };
    let finished = ran("web -- true", server()).await;
    assert_eq!((finished.label(Stage::Operating), finished.server.writes), (&Value::Null, 6));
    assert_eq!(finished.code(), code(0));
    let cancelled = ran("web -- false", server()).await;
    assert_eq!((cancelled.label(Stage::UndoOperationType), cancelled.server.writes), (&json!("restart"), 6));
    assert_eq!(cancelled.code(), code(1));
    let without_answer = Server { failing: vec![(2..3, true)], ..Server::permitting() };
    let finished = ran("web -- true", without_answer).await;
    assert_eq!((finished.server.writes, finished.code()), (2, code(0)));
}

#[tokio::test]
async fn an_operation_that_cannot_be_ended_is_named() {
    let failing = || Server { failing: vec![(2..1_000, false)], ..Server::permitting() };
    let finished = ran("web --id kubectl -- true", failing()).await;
    let error = finished.error();
    let words = "operation kubectl of pod shop/web goes on; to end it: kubectl podward finish web -n shop --id kubectl: \
                 write pod shop/web: ";
    assert!(error.starts_with(words), "{error}");
    let mut line = begin("web -- sh");
    line.command.extend(["-c", "exit 3"].map(ToOwned::to_owned));
    assert_eq!(run(line, failing(), &[], During::Wait).await.code(), code(3));
    let unknown = ran("web", Server { failing: vec![(1..1_000, true)], ..Server::new(None) }).await;
    assert_eq!(unknown.code(), code(0), "the announcement is found");
    let lost = ran("web", Server { failing: vec![(1..1_000, false)], ..Server::new(None) }).await;
    let words = "operation kubectl of pod shop/web may have begun; to end it: kubectl podward cancel web -n shop --id kubectl: ";
    assert!(lost.error().starts_with(words), "{}", lost.error());
}

#[tokio::test]
async fn what_follows_an_operation_is_not_ended() {
    let operating = Stage::Operating.key("kubectl");
    for then in [json!({"metadata": {"uid": "v"}}), json!({"metadata": {"labels": {operating: "1"}}})] {
        for (command, is_error) in [("true", true), ("false", false)] {
            let server = Server { then: then.clone(), ..Server::permitting() };
            let ran = ran(&format!("web -- {command}"), server).await;
            assert_eq!((ran.server.writes, ran.ended.is_err()), (1, is_error), "{then} {command}");
        }
    }
}

#[tokio::test]
async fn an_interrupted_command_that_succeeds_has_its_operation_cancelled() {
    let ran =
        run(begin("web -- sleep 0.2"), Server::permitting(), &[Interruption::Interrupt], During::Command)
            .await;
    assert_eq!(ran.label(Stage::UndoOperationType), "restart");
    assert_eq!(ran.code(), code(130));
}

#[tokio::test]
async fn an_interrupted_announcement_is_not_repeated_and_is_cancelled_if_it_was_stored() {
    let cases = [
        (During::Start, vec![], 0, false),
        (During::Announcement, vec![(1..2, false)], 1, false),
        (During::Announcement, vec![(1..2, true)], 2, true),
    ];
    for (during, failing, writes, is_cancelled) in cases {
        for line in ["web", "web -- true"] {
            let server = Server { failing: failing.clone(), ..Server::new(None) };
            let ran = run(begin(line), server, &[Interruption::Interrupt], during).await;
            assert_eq!(ran.server.writes, writes, "{during:?} {failing:?}");
            assert_eq!(
                !ran.label(Stage::UndoOperationType).is_null(),
                is_cancelled,
                "{during:?} {failing:?}"
            );
            assert_eq!(ran.code(), code(130));
        }
    }
}

#[tokio::test]
async fn a_repeated_request_does_not_end_what_has_begun_since() {
    for is_finished in [true, false] {
        let labels = json!({
            Stage::Operating.key("kubectl"): "2",
            Stage::OperationType.key("kubectl"): "restart",
            Stage::UndoOperationType.key("kubectl"): null,
        });
        let after_failure = Some(json!({"metadata": {"labels": labels}}));
        let server = Server { failing: vec![(1..2, true)], after_failure, ..Server::new(Some("restart")) };
        let server = Arc::new(Mutex::new(server));
        let pod = PodClient::new(client(&server), &begin("web").place);
        let ended = match is_finished {
            true => finish::finish(&pod, "kubectl", None).await,
            false => cancel::cancel(&pod, "kubectl", None).await,
        };
        assert_eq!(server.lock().unwrap().writes, 1, "finish: {is_finished}");
        let error = format!("{:#}", ended.unwrap_err());
        assert!(error.contains("another one with this id has begun"), "{error}");
    }
}
