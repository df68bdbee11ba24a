//! The listener: takes connections until SIGTERM, then lets those that are open end, or ends at once.

use std::{convert::Infallible, sync::Arc};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{
    app::App,
    settings::{Settings, Shutdown},
};

/// Serves until SIGTERM or SIGINT, and then, unless it is to end at once, until the last request in flight is answered. The pod's
/// grace period is what bounds that time.
pub(crate) async fn serve(settings: Settings) -> Result<(), String> {
    let listener = TcpListener::bind(&settings.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", settings.listen))?;
    // Also where the end is immediate: process 1 of a container without a handler would ignore the signal.
    let hook = |kind| signal(kind).map_err(|error| format!("cannot watch for signals: {error}"));
    let (mut terminated, mut interrupted) = (hook(SignalKind::terminate())?, hook(SignalKind::interrupt())?);
    let app = Arc::new(App::new(&settings));
    let graceful = GracefulShutdown::new();
    println!("{} serves on {}", settings.version, settings.listen);
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let (app, open) = (app.clone(), app.connected());
                let service = service_fn(move |request: Request<Incoming>| {
                    let app = app.clone();
                    async move { Ok::<_, Infallible>(app.answer(request.uri().path(), request.uri().query()).await) }
                });
                let connection = graceful.watch(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                tokio::spawn(async move {
                    // What goes wrong on one connection is that client's affair.
                    drop(connection.await);
                    drop(open);
                });
            },
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
        }
    }
    if settings.shutdown == Shutdown::Graceful {
        app.drain();
        drop(listener);
        graceful.shutdown().await;
    }
    Ok(())
}
