//! A small HTTP server that the demo and the tests update. It behaves as a server in a cluster should: it reports when
//! it is ready, and on SIGTERM it finishes the requests in flight before it ends. It can also end at once, as many
//! servers do.
//!
//! | path | response |
//! |---|---|
//! | `/` | version and pod name |
//! | `/slow?ms=N` | the same, after N milliseconds |
//! | `/readyz` | 200 while it accepts requests, 503 afterwards |
//! | `/drain` | makes `/readyz` return 503; the server goes on, with one response per connection |
//! | `/in-flight` | the number of other open connections; with `?of=requests` that of requests without a response |
//!
//! Environment: `VERSION` (part of the image), `POD_NAME` (from the pod's fields; by default the host name), `LISTEN`
//! (default `0.0.0.0:8080`) and `SHUTDOWN` (`graceful`, the default, or `immediate`: the behaviour on SIGTERM). The
//! arguments `--version-text TEXT`, `--listen ADDR:PORT` and `--shutdown MODE` override the environment.

mod app;
mod serve;
mod settings;

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match settings::ServerSettings::from_args(std::env::args().skip(1)) {
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
