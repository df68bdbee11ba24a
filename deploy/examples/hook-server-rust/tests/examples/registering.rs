//! Registration of the hook servers.

use podward_proto::v1::{Endpoint, Hook, LabelSelector, Phase, hook::Connection};
use tonic::Status;

use crate::{
    conversation::Server,
    files::Files,
    program::Example,
    registry::{Registry, TOKEN},
};

/// Returns the arguments of a server that registers.
fn args(example: Example, files: &Files, registry: &Registry) -> Vec<String> {
    files.write("token", &format!("{TOKEN}\n"));
    let podward = match example {
        Example::RustServer => format!("https://{}", registry.address),
        Example::PythonServer | Example::PythonAttached => registry.address.to_string(),
    };
    let pairs = [
        ("--podward", podward),
        ("--podward-ca", files.arg("ca.crt")),
        ("--token-file", files.arg("token")),
        ("--url", "https://balancer.shop.svc:9445".to_owned()),
        ("--ca", files.arg("ca.crt")),
        ("--pod-label", "app=web".to_owned()),
    ];
    pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
}

/// Returns the hook that an example registers, without defaults.
pub(crate) fn expected(connection: Connection) -> Hook {
    let match_labels = [("app".to_owned(), "web".to_owned())].into();
    Hook {
        name: "example-balancer".to_owned(),
        pod_selector: Some(LabelSelector { match_labels, match_expressions: Vec::new() }),
        phases: vec![Phase::Prepare.into(), Phase::Complete.into(), Phase::Release.into()],
        connection: Some(connection),
        ..Hook::default()
    }
}

#[tokio::test]
async fn rust_server_registers() {
    registers(Example::RustServer).await;
}

#[tokio::test]
async fn python_server_registers() {
    registers(Example::PythonServer).await;
}

/// Podward is unavailable at first, then rejects the account, and then accepts the hook.
async fn registers(example: Example) {
    let files = Files::new();
    let refusals = [Status::unavailable("starting"), Status::permission_denied("no role binding yet")];
    let mut registry = Registry::start(&files, refusals).await;
    let mut server = Server::start(example, &files, &args(example, &files, &registry)).await;
    let hook = registry.hook().await;
    let endpoint = Endpoint {
        url: "https://balancer.shop.svc:9445".to_owned(),
        ca_certificates: files.text("ca.crt"),
        server_name: String::new(),
    };
    assert_eq!(hook, expected(Connection::Endpoint(endpoint)));
    let said = server.program.says("registered as example-balancer").await;
    assert!(said.contains("matches no pod"), "warnings are shown: {said}");
    for refusal in ["starting", "no role binding yet"] {
        server.program.mentions(refusal).await;
    }
    server.program.stop().await;
}

#[tokio::test]
async fn rust_server_gives_up_an_invalid_hook() {
    gives_up(Example::RustServer).await;
}

#[tokio::test]
async fn python_server_gives_up_an_invalid_hook() {
    gives_up(Example::PythonServer).await;
}

async fn gives_up(example: Example) {
    let files = Files::new();
    let why = "pod_selector: it can match nothing";
    let registry = Registry::start(&files, [Status::invalid_argument(why)]).await;
    let mut server = Server::start(example, &files, &args(example, &files, &registry)).await;
    let status = server.program.ended().await;
    assert_eq!(status.code(), Some(1), "{}", server.program.log());
    assert!(server.program.log().contains(why), "{}", server.program.log());
}
