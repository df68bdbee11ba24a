//! Runs a process until a signal stops it.

use std::future::Future;
use std::io;

use anyhow::{Context, anyhow};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::ProcessArgs;
use crate::telemetry;

/// Runs a service: installs the TLS provider, sets up logging, and runs `serve` until it returns. SIGTERM or SIGINT
/// cancels its token.
///
/// # Errors
///
/// When `serve` fails, or the process can't be set up.
pub fn run(
    process: &ProcessArgs,
    serve: impl AsyncFnOnce(CancellationToken) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Before anything makes a TLS configuration: whichever crate came first would choose the provider.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a TLS provider was installed before the service was started"))?;
    telemetry::init(&process.log)?;
    block_on(process.threads.map(usize::from), async {
        serve(on_signal().context("could not listen for signals")?).await
    })
}

/// Returns a token that SIGTERM or SIGINT cancels. A second signal ends the process at once.
fn on_signal() -> io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        for first in [true, false] {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if first {
                tracing::info!(signal = name, "stopping");
                stop.cancel();
            } else {
                tracing::warn!(signal = name, "stopping at once");
                std::process::exit(1);
            }
        }
    });
    Ok(token)
}

/// Runs `main` on a runtime with `threads` worker threads; `None` stands for one for each CPU that the process may use.
///
/// It raises the limit of open files first, because each connection needs one.
///
/// With one thread it uses the single-threaded runtime, which needs less CPU time for each request.
fn block_on<F>(threads: Option<usize>, main: F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    crate::file_limit::raise();
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or_else(available);
    let mut builder = if threads <= 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads);
        builder
    };
    let runtime = builder.enable_all().build()?;
    let result = runtime.block_on(main);
    // Tasks that still run are not waited for.
    runtime.shutdown_background();
    result
}
