//! Questions to a hook server during the lifecycle of pods.

use futures::future::join_all;
use podward_proto::v1::{HandleRequest, HandleResponse, Phase, Pod, hook_handler_client::HookHandlerClient};
use serde_json::json;
use tonic::{
    Code, Request, Status,
    transport::{Certificate, Channel, ClientTlsConfig},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    files::Files,
    program::{Example, Program},
    questions::{address, pod, question, summary},
};

/// A running hook server and a connection to it.
pub(crate) struct Server {
    pub(crate) program: Program,
    channel: Channel,
}

impl Server {
    pub(crate) async fn start(example: Example, files: &Files, args: &[String]) -> Self {
        Self::start_with(example, files, args, &[]).await
    }

    pub(crate) async fn start_with(
        example: Example,
        files: &Files,
        args: &[String],
        env: &[(&str, &std::path::Path)],
    ) -> Self {
        let args: Vec<String> = files.server_args().into_iter().chain(args.iter().cloned()).collect();
        let mut program = example.start(&args, env).await;
        let at = program.says("serving at ").await;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(files.text("ca.crt")));
        let channel = Channel::from_shared(format!("https://{at}")).unwrap().tls_config(tls).unwrap();
        let channel = channel.connect().await.unwrap_or_else(|error| panic!("{error:?}\n{}", program.log()));
        Self { program, channel }
    }

    pub(crate) async fn handle(&self, request: Request<HandleRequest>) -> Result<HandleResponse, Status> {
        HookHandlerClient::new(self.channel.clone()).handle(request).await.map(tonic::Response::into_inner)
    }

    async fn ask(&self, phase: Phase, pod: Pod) -> String {
        match self.handle(Request::new(question(phase, pod))).await {
            Ok(answer) => summary(&answer),
            Err(status) => panic!("{status:?}\n{}", self.program.log()),
        }
    }

    async fn refuses(&self, question: HandleRequest) -> Code {
        match self.handle(Request::new(question)).await {
            Ok(answer) => panic!("answered: {answer:?}"),
            Err(status) => status.code(),
        }
    }

    async fn is_healthy(&self, service: &str) -> bool {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = HealthClient::new(self.channel.clone()).check(request).await;
        answer.is_ok_and(|answer| answer.into_inner().status() == ServingStatus::Serving)
    }
}

#[tokio::test]
async fn rust_server_adds_and_drains_pods() {
    adds_and_drains_pods(Example::RustServer).await;
}

#[tokio::test]
async fn python_server_adds_and_drains_pods() {
    adds_and_drains_pods(Example::PythonServer).await;
}

async fn adds_and_drains_pods(example: Example) {
    let files = Files::new();
    let server = Server::start(example, &files, &[]).await;
    let at = address(1);

    assert_eq!(
        server.ask(Phase::Complete, pod(1)).await,
        "DONE ASSUMED: the balancer does not report its state"
    );
    let backends = json!({pod(1).uid: {"pod": "shop/web-1", "address": at}});
    assert_eq!(files.backends(), json!({"generation": 1, "backends": backends}));
    files.report(0, &[]);
    let not_yet = "PENDING: the balancer has not applied the change yet";
    assert_eq!(server.ask(Phase::Complete, pod(1)).await, not_yet);
    files.report(1, &[]);
    assert_eq!(server.ask(Phase::Complete, pod(1)).await, "DONE PROVEN: added in generation 1");
    assert_eq!(files.generation(), 1, "being asked again changes nothing");

    files.report(1, &[(&at, 2)]);
    assert_eq!(server.ask(Phase::Prepare, pod(1)).await, not_yet);
    assert_eq!(files.backends(), json!({"generation": 2, "backends": {}}));
    files.report(2, &[(&at, 2)]);
    assert_eq!(server.ask(Phase::Prepare, pod(1)).await, "PENDING: 2 connections are left");
    files.report(2, &[(&at, 1)]);
    assert_eq!(server.ask(Phase::Prepare, pod(1)).await, "PENDING: 1 connection is left");
    files.report(2, &[]);
    let proven = "DONE PROVEN: removed in generation 2, no open connections";
    for _ in 0..2 {
        assert_eq!(server.ask(Phase::Prepare, pod(1)).await, proven);
    }

    assert!(server.is_healthy("").await && server.is_healthy("podward.v1.HookHandler").await);
    server.program.stop().await;
}

#[tokio::test]
async fn rust_server_keeps_its_state() {
    keeps_its_state(Example::RustServer).await;
}

#[tokio::test]
async fn python_server_keeps_its_state() {
    keeps_its_state(Example::PythonServer).await;
}

/// Concurrent questions, a crash, and pods that end without PREPARE.
async fn keeps_its_state(example: Example) {
    let files = Files::new();
    let server = Server::start(example, &files, &[]).await;
    join_all((1..=40).map(|number| server.ask(Phase::Complete, pod(number)))).await;
    let count = |files: &Files| files.backends()["backends"].as_object().unwrap().len();
    assert_eq!((files.generation(), count(&files)), (40, 40), "no change may get lost");
    server.program.kill().await;

    let server = Server::start(example, &files, &[]).await;
    let gone = pod(7);
    assert_eq!(server.ask(Phase::Release, gone.clone()).await, "DONE ASSUMED: removed in generation 41");
    assert_eq!(server.ask(Phase::Release, gone).await, "DONE ASSUMED: removed in generation 41");
    assert_eq!(count(&files), 39);
    server.program.stop().await;
}

#[tokio::test]
async fn rust_server_states_why_it_refuses() {
    states_why_it_refuses(Example::RustServer).await;
}

#[tokio::test]
async fn python_server_states_why_it_refuses() {
    states_why_it_refuses(Example::PythonServer).await;
}

async fn states_why_it_refuses(example: Example) {
    let files = Files::new();
    let server = Server::start(example, &files, &[]).await;
    let portless = Pod { ports: Vec::new(), ..pod(1) };
    assert_eq!(
        server.ask(Phase::Complete, portless).await,
        "REJECTED: no container of shop/web-1 declares a TCP port to send traffic to"
    );
    let addressless = Pod { ips: Vec::new(), ..pod(1) };
    assert_eq!(server.ask(Phase::Complete, addressless).await, "PENDING: the pod has no address yet");
    assert_eq!(server.refuses(question(Phase::PreCheck, pod(1))).await, Code::InvalidArgument);
    assert_eq!(server.refuses(HandleRequest::default()).await, Code::InvalidArgument);

    // An invalid file must not count as empty.
    files.write("backends.json", "{");
    assert_eq!(server.refuses(question(Phase::Complete, pod(1))).await, Code::Unavailable);
    assert_eq!(files.text("backends.json"), "{");
    server.program.stop().await;
}
