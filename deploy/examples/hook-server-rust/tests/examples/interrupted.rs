//! A program ends on SIGTERM even if the signal arrives while it holds a lock.

use crate::{
    files::Files,
    program::{Example, Program},
    registry::TOKEN,
};

#[tokio::test]
async fn python_server_ends_when_it_is_interrupted() {
    let files = Files::new();
    let mut program = Example::PythonServer.start_interrupted(&files.server_args()).await;
    program.says("serving at ").await;
    ends(program).await;
}

#[tokio::test]
async fn python_server_ends_when_it_is_interrupted_while_it_registers() {
    let files = Files::new();
    let url = ["--url".to_owned(), "https://balancer.shop.svc:9445".to_owned()];
    let ca = ["--ca".to_owned(), files.arg("ca.crt")];
    let args = [files.server_args(), without_podward(&files), url.into(), ca.into()].concat();
    let mut program = Example::PythonServer.start_interrupted(&args).await;
    program.says("not registered yet: ").await;
    ends(program).await;
}

#[tokio::test]
async fn python_ends_when_it_is_interrupted_between_attempts_to_attach() {
    let files = Files::new();
    let args = [files.balancer_args(), without_podward(&files)].concat();
    let mut program = Example::PythonAttached.start_interrupted(&args).await;
    program.says("not attached: ").await;
    ends(program).await;
}

/// Returns arguments with an address of Podward that is unreachable.
fn without_podward(files: &Files) -> Vec<String> {
    files.write("token", TOKEN);
    ["--podward", "127.0.0.1:1", "--podward-ca", &files.arg("ca.crt"), "--token-file", &files.arg("token")]
        .map(ToOwned::to_owned)
        .into()
}

async fn ends(mut program: Program) {
    let status = program.ended().await;
    assert!(status.success(), "ended with {status}; its output:\n{}", program.log());
}
