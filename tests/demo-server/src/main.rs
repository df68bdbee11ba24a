//! A small HTTP server to be updated in the demo and in tests. It behaves as a server in a cluster should: it says
//! when it is ready, and on SIGTERM it finishes the requests in flight before it ends. It can also behave as many servers
//! do, and end at once.
//!
//! | path | answer |
//! |---|---|
//! | `/` | version and pod name |
//! | `/slow?ms=N` | the same, after N milliseconds |
//! | `/readyz` | 200 while it takes requests, 503 afterwards |
//! | `/drain` | turns `/readyz` to 503 and goes on serving, one answer a connection |
//! | `/in-flight` | how many connections are open besides the one that asks; `?of=requests`: how many requests have no answer yet |
//!
//! Environment: `VERSION` (baked into the image), `POD_NAME` (from the pod's own fields; the host name otherwise),
//! `LISTEN` (default `0.0.0.0:8080`) and `SHUTDOWN` (`graceful`, the default, or `immediate`: what SIGTERM does).
//! `--version-text TEXT`, `--listen ADDR:PORT` and `--shutdown MODE` win over the environment.

mod app;
mod serve;
mod settings;

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match settings::Settings::from_args(std::env::args().skip(1)) {
        Ok(settings) => serve::serve(settings).await,
        Err(message) => Err(message),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("demo-server: {message}");
            ExitCode::FAILURE
        }
    }
}
