//! Tests of the example that connects to Podward.

use podward_proto::v1::{
    AttachAnswer, AttachCall, AttachCallCancelled, AttachRequest, AttachResponse,
    Attached as AttachedMessage, Attachment, HandleRequest, Phase, attach_request, attach_response,
    hook::Connection,
};
use tokio::time::timeout;
use tonic::Status;

use crate::{
    files::Files,
    program::{Example, Program, TIMEOUT},
    questions::{pod, question, summary},
    registering::expected,
    registry::{Attached, Registry, TOKEN},
};

async fn start(files: &Files, registry: &Registry, register: bool) -> Program {
    files.write("token", TOKEN);
    let own = [
        "--podward".to_owned(),
        registry.address.to_string(),
        "--podward-ca".to_owned(),
        files.arg("ca.crt"),
        "--token-file".to_owned(),
        files.arg("token"),
        "--pod-label=app=web".to_owned(),
    ];
    let register = register.then(|| "--register".to_owned());
    let args: Vec<String> = files.balancer_args().into_iter().chain(own).chain(register).collect();
    Example::PythonAttached.start(&args, &[]).await
}

async fn up(stream: &mut Attached) -> attach_request::Message {
    let message = timeout(TIMEOUT, stream.up.message()).await.expect("no message arrived").unwrap();
    let AttachRequest { message } = message.expect("the stream ended");
    message.expect("an empty message")
}

async fn down(stream: &Attached, message: attach_response::Message) {
    stream.down.send(Ok(AttachResponse { message: Some(message) })).await.unwrap();
}

async fn greet(stream: &mut Attached) {
    match up(stream).await {
        attach_request::Message::Hello(hello) => assert_eq!(hello.hook_name, "example-balancer"),
        other @ attach_request::Message::Answer(_) => panic!("the first message was {other:?}"),
    }
    down(stream, attach_response::Message::Attached(AttachedMessage {})).await;
}

async fn call(stream: &Attached, call_id: u64, request: HandleRequest) {
    down(
        stream,
        attach_response::Message::Call(AttachCall {
            call_id,
            request: Some(request),
            traceparent: String::new(),
        }),
    )
    .await;
}

/// Waits for `count` answers, and returns them sorted by the ID of the call.
async fn answers(stream: &mut Attached, count: usize) -> Vec<(u64, String)> {
    let mut answers = Vec::new();
    while answers.len() < count {
        match up(stream).await {
            attach_request::Message::Answer(AttachAnswer { call_id, response }) => {
                answers.push((call_id, summary(&response.unwrap())));
            }
            other @ attach_request::Message::Hello(_) => panic!("{other:?} in the middle"),
        }
    }
    answers.sort();
    answers
}

#[tokio::test]
async fn python_attaches_and_answers() {
    let files = Files::new();
    files.report(100, &[]);
    let mut registry = Registry::start(&files, []).await;
    let mut program = start(&files, &registry, true).await;
    assert_eq!(registry.hook().await, expected(Connection::Attachment(Attachment {})));
    let mut stream = registry.stream().await;
    greet(&mut stream).await;
    program.says("attached as example-balancer").await;

    for number in 1..=20 {
        call(&stream, u64::from(number), question(Phase::Complete, pod(number))).await;
    }
    let all = answers(&mut stream, 20).await;
    assert!(all.iter().map(|(id, _)| *id).eq(1..=20), "{all:?}");
    assert!(
        all.iter().all(|(_, summary)| summary.starts_with("DONE PROVEN: added in generation ")),
        "{all:?}"
    );
    assert_eq!(files.generation(), 20);

    // A cancelled call, an invalid question, and a valid question.
    down(&stream, attach_response::Message::Cancelled(AttachCallCancelled { call_id: 20 })).await;
    call(&stream, 21, question(Phase::PreCheck, pod(1))).await;
    assert_eq!(answers(&mut stream, 1).await, [(21, "PENDING: this hook is not for phase 1".to_owned())]);
    call(&stream, 22, question(Phase::Prepare, pod(1))).await;
    let summary = "DONE PROVEN: removed in generation 21, no open connections".to_owned();
    assert_eq!(answers(&mut stream, 1).await, [(22, summary)]);
    program.stop().await;
}

/// The hook is rejected at first, loses its stream during a question, and attaches again.
#[tokio::test]
async fn python_attaches_again() {
    let files = Files::new();
    let refusals = [Status::unavailable("no leader"), Status::not_found("no hook example-balancer")];
    let mut registry = Registry::start(&files, refusals).await;
    let mut program = start(&files, &registry, false).await;
    let mut stream = registry.stream().await;
    greet(&mut stream).await;
    program.says("attached as").await;
    for refusal in ["no leader", "no hook example-balancer"] {
        program.mentions(refusal).await;
    }
    let lost = question(Phase::Complete, pod(1));
    call(&stream, 1, lost.clone()).await;
    stream.down.send(Err(Status::unavailable("the leader has changed"))).await.unwrap();
    drop(stream);

    let mut stream = registry.stream().await;
    greet(&mut stream).await;
    program.says_times("attached as", 2).await;
    call(&stream, 1, lost).await;
    let told = "DONE ASSUMED: the balancer does not report its state".to_owned();
    assert_eq!(answers(&mut stream, 1).await, [(1, told)]);
    assert_eq!(files.generation(), 1);

    // It also attaches again after a stream that ends without an error.
    drop(stream);
    greet(&mut registry.stream().await).await;
    program.stop().await;
}

#[tokio::test]
async fn python_gives_up_an_invalid_hook() {
    let files = Files::new();
    let registry = Registry::start(&files, [Status::invalid_argument("the hook has an endpoint")]).await;
    let mut program = start(&files, &registry, false).await;
    assert_eq!(program.ended().await.code(), Some(1), "{}", program.log());
    assert!(program.log().contains("the hook has an endpoint"), "{}", program.log());
}
