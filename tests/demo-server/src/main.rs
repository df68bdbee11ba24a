//! A small HTTP server to be updated in the demo and in tests. It behaves as a server in a cluster should: it says
//! when it is ready, and on SIGTERM it finishes the requests in flight before it ends.
//!
//! | path | answer |
//! |---|---|
//! | `/` | version and pod name |
//! | `/slow?ms=N` | the same, after N milliseconds |
//! | `/readyz` | 200 while it takes requests, 503 afterwards |
//! | `/drain` | turns `/readyz` to 503 and goes on serving |
//!
//! Environment: `VERSION` (baked into the image), `POD_NAME` (from the pod's own fields; the host name otherwise) and
//! `LISTEN` (default `0.0.0.0:8080`). `--version-text TEXT` and `--listen ADDR:PORT` win over the environment.

mod app;
mod serve;

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match app::Settings::from_args(std::env::args().skip(1)) {
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
