//! Hook systems that connect to Podward.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use podward_core::hooks::HookAnswers;
use podward_proto::v1;
use podward_proto::v1::attach_response::Message;
use podward_support::eventually;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::hook_server::done;
use super::{Fixture, TEST_TIMEOUT, hook, pod, question};
use crate::calls::attachment::AttachedStreams;
use crate::questions::table::{QuestionTable, TableOutput};
use crate::{AttachError, Attachment, HookMetrics};

async fn next(attachment: &mut Attachment) -> Message {
    let message = tokio::time::timeout(TEST_TIMEOUT, attachment.calls.recv()).await.expect("nothing came");
    message.expect("the stream ended").message.unwrap()
}

async fn call(attachment: &mut Attachment) -> v1::AttachCall {
    match next(attachment).await {
        Message::Call(call) => call,
        other => panic!("{other:?}"),
    }
}

async fn answer(attachment: &Attachment, call_id: u64, detail: &str) {
    let answer = v1::AttachAnswer { call_id, response: Some(done(detail)) };
    attachment.answers.send(answer).await.unwrap();
}

async fn attached(fixture: &Fixture) -> Attachment {
    let mut attachment = fixture.hook_calls.attach("bridge").unwrap();
    assert!(matches!(next(&mut attachment).await, Message::Attached(_)));
    attachment
}

async fn fixture() -> Fixture {
    Fixture::with(&[hook("bridge", json!({"attachment": {}, "callTimeoutMilliseconds": 60_000}))], &[]).await
}

#[tokio::test]
async fn a_stream_that_ends_leaves_its_calls_to_another() {
    let mut fixture = fixture().await;
    let reported = fixture.ask_until_reported(&pod("a"), &question("bridge")).await;
    assert!(reported.contains("no hook system is attached"), "{reported}");

    let mut first = attached(&fixture).await;
    let asked = call(&mut first).await;
    assert_eq!(asked.request.unwrap().pod.unwrap().name, "a");
    let mut second = attached(&fixture).await;
    // An answer on the wrong stream is none: only whom it was asked may answer.
    answer(&second, asked.call_id, "forged").await;
    drop(first);
    let again = call(&mut second).await;
    assert_ne!(again.call_id, asked.call_id);
    answer(&second, asked.call_id, "late").await;
    answer(&second, again.call_id, "let go").await;
    assert_eq!(fixture.ask_until_done(&pod("a"), &question("bridge")).await, "let go");
    answer(&second, again.call_id, "twice").await;

    // Answers are read in order: when this one is in, those before it were.
    fixture.hook_calls.ask(&pod("b"), &[question("bridge")]);
    let other = call(&mut second).await;
    answer(&second, other.call_id, "b").await;
    assert_eq!(fixture.ask_until_done(&pod("b"), &question("bridge")).await, "b");
    assert_eq!(fixture.metrics.ignored_so_far("bridge"), 3);

    drop(second.answers);
    let reported = fixture.ask_until_reported(&pod("c"), &question("bridge")).await;
    assert!(reported.contains("no hook system is attached"), "{reported}");
}

#[tokio::test]
async fn a_hook_system_that_left_with_a_call_was_asked() {
    let mut fixture = fixture().await;
    let (web, question) = (pod("a"), question("bridge"));
    let mut stream = attached(&fixture).await;
    fixture.hook_calls.ask(&web, std::slice::from_ref(&question));
    call(&mut stream).await;
    drop(stream);
    let reported = fixture.ask_until_reported(&web, &question).await;
    assert!(reported.contains("no hook system is attached"), "{reported}");
    assert!(fixture.hook_calls.answers(web.uid()).withhold_unless_asked("bridge", question.phase));
}

#[tokio::test]
async fn calls_are_shared_by_the_streams_and_cancelled_on_theirs() {
    let fixture = fixture().await;
    let (mut first, mut second) = (attached(&fixture).await, attached(&fixture).await);
    fixture.hook_calls.ask(&pod("a"), &[question("bridge")]);
    fixture.hook_calls.ask(&pod("b"), &[question("bridge")]);
    let (one, other) = (call(&mut first).await, call(&mut second).await);
    let name = |call: &v1::AttachCall| call.request.as_ref().unwrap().pod.as_ref().unwrap().name.clone();
    assert_ne!(name(&one), name(&other));
    fixture.hook_calls.ask(&pod(&name(&one)), &[]);
    let cancelled = next(&mut first).await;
    assert_eq!(cancelled, Message::Cancelled(v1::AttachCallCancelled { call_id: one.call_id }));
    assert!(second.calls.try_recv().is_err(), "nothing for the other");
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_is_skipped() {
    let spec = json!({"attachment": {}, "maxConcurrentCalls": 1, "callTimeoutMilliseconds": 100});
    let mut fixture = Fixture::with(&[hook("bridge", spec)], &[]).await;
    // It has room for three messages, and reads none: the first call and that it is cancelled fill it up.
    let _stuck = fixture.hook_calls.attach("bridge").unwrap();
    let reported = fixture.ask_until_reported(&pod("a"), &question("bridge")).await;
    assert!(reported.contains("no answer"), "{reported}");
    let (a, question) = (pod("a"), question("bridge"));
    let words = |fixture: &Fixture| super::reported(fixture.answer(&a, &question)).unwrap_or_default();
    fixture.until(|fixture| words(fixture).contains("does not read")).await;
    let mut reads = attached(&fixture).await;
    let asked = call(&mut reads).await;
    answer(&reads, asked.call_id, "read").await;
    assert_eq!(fixture.ask_until_done(&a, &question).await, "read");
}

#[tokio::test]
async fn a_stream_that_does_not_answer_is_asked_after_one_that_does() {
    let spec = json!({"attachment": {}, "callTimeoutMilliseconds": 100});
    let mut fixture = Fixture::with(&[hook("bridge", spec)], &[]).await;
    // It reads its calls and answers none.
    let mut hangs = attached(&fixture).await;
    let reads = tokio::spawn(async move { while hangs.calls.recv().await.is_some() {} });
    let mut works = attached(&fixture).await;
    fixture.hook_calls.ask(&pod("a"), &[question("bridge")]);
    let asked = call(&mut works).await;
    answer(&works, asked.call_id, "by the other").await;
    assert_eq!(fixture.ask_until_done(&pod("a"), &question("bridge")).await, "by the other");
    assert!(!reads.is_finished(), "its stream has not ended");
}

#[tokio::test]
async fn a_stream_whose_answer_is_late_is_asked_again() {
    let (table, metrics) = (QuestionTable::new(TableOutput::default()), HookMetrics::default());
    let (closed, tasks) = (CancellationToken::new(), TaskTracker::new());
    let table = Arc::new(Mutex::new(table));
    let streams = Arc::new(AttachedStreams::new("bridge", 8, table, metrics.clone(), closed, tasks));
    let ask = async |timeout| streams.handle(v1::HandleRequest::default(), String::new(), timeout).await;
    let mut late = streams.attach().unwrap();
    assert!(matches!(next(&mut late).await, Message::Attached(_)));
    ask(Duration::from_millis(1)).await.unwrap_err();
    let asked = call(&mut late).await;
    assert!(matches!(next(&mut late).await, Message::Cancelled(_)));

    let mut other = streams.attach().unwrap();
    assert!(matches!(next(&mut other).await, Message::Attached(_)));
    answer(&late, asked.call_id, "late").await;
    let ignored = || metrics.ignored_so_far("bridge");
    eventually(TEST_TIMEOUT, || ignored().to_string(), || ignored() == 1).await.unwrap();
    // Both streams have no call: the older one is asked.
    let asked = tokio::select! {
        asked = call(&mut late) => asked,
        _ = call(&mut other) => panic!("the stream with the late answer was passed over"),
        _ = ask(TEST_TIMEOUT) => panic!("nobody has answered"),
    };
    assert_eq!(asked.call_id, 2);
}

#[tokio::test]
async fn an_open_stream_has_room_for_more_calls_when_the_hook_allows_them() {
    let spec = |calls: usize| json!({"attachment": {}, "maxConcurrentCalls": calls, "callTimeoutMilliseconds": 60_000});
    let mut fixture = Fixture::with(&[hook("bridge", spec(1))], &[]).await;
    let mut stream = attached(&fixture).await;
    fixture.api.put_hook(hook("bridge", spec(40)));
    fixture.api.status("bridge", |status| status["observedGeneration"] == 2).await;
    // It reads only when all calls are there.
    let pods: Vec<_> = (0..40).map(|number| pod(&number.to_string())).collect();
    for pod in &pods {
        fixture.hook_calls.ask(pod, &[question("bridge")]);
    }
    fixture.api.status("bridge", |status| status["callsInFlight"] == 40).await;
    for pod in &pods {
        let answer = fixture.answer(pod, &question("bridge"));
        assert_eq!(super::reported(answer), None, "{}", pod.key());
    }
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < pods.len() {
        if let Message::Call(asked) = next(&mut stream).await {
            answer(&stream, asked.call_id, "released").await;
            answered.insert(asked.request.unwrap().pod.unwrap().name);
        }
    }
    for pod in &pods {
        assert_eq!(fixture.ask_until_done(pod, &question("bridge")).await, "released");
    }
}

#[tokio::test]
async fn only_registered_systems_attach() {
    let endpoint = json!({"url": "https://127.0.0.1:1"});
    let hooks = [
        hook("server", json!({ "endpoint": endpoint })),
        hook("slip", json!({"phases": [], "attachment": {}})),
    ];
    let fixture = Fixture::with(&hooks, &[]).await;
    let refused = |name: &str| fixture.hook_calls.attach(name).unwrap_err();
    assert_eq!(refused("nobody"), AttachError::NotRegistered("nobody".to_owned()));
    assert_eq!(refused("server"), AttachError::NotAnAttachment("server".to_owned()));
    assert!(matches!(refused("slip"), AttachError::Invalid { .. }));
}

#[tokio::test]
async fn a_hook_that_is_removed_or_a_lost_lead_ends_the_streams() {
    let fixture = fixture().await;
    let mut first = attached(&fixture).await;
    fixture.api.delete_hook("bridge");
    let end = tokio::time::timeout(TEST_TIMEOUT, first.calls.recv()).await.expect("it goes on");
    assert_eq!(end, None);
    fixture.api.put_hook(hook("bridge", json!({"attachment": {}})));
    fixture.api.status("bridge", |status| status["conditions"].is_array()).await;
    let mut second = attached(&fixture).await;
    let hook_calls = fixture.hook_calls.clone();
    fixture.stop().await;
    assert_eq!(second.calls.recv().await, None);
    assert_eq!(hook_calls.attach("bridge").unwrap_err(), AttachError::NotLeading);
}
