//! The control port, and the end of the loads.

use std::{convert::Infallible, io, sync::Arc};

use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use crate::{args::ClientArgs, load::RunningLoad, report::ClientReport};

struct ControlServer {
    loads: Vec<Arc<RunningLoad>>,
    stop: watch::Sender<bool>,
    stopped: watch::Sender<bool>,
    /// True when the last report was fetched.
    told: watch::Sender<bool>,
}

pub(crate) async fn run(args: ClientArgs) -> io::Result<()> {
    let listener = TcpListener::bind(args.control).await?;
    let mut terminated = signal(SignalKind::terminate())?;
    let (stop, stops) = watch::channel(false);
    let (stopped, told) = (watch::Sender::new(false), watch::Sender::new(false));
    let loads = args.connections.iter().map(|connections| RunningLoad::new(&args, *connections));
    let loads: Vec<_> = loads.collect::<Result<_, _>>().map_err(io::Error::other)?;
    let control = Arc::new(ControlServer { loads, stop, stopped, told });
    let mut running: JoinSet<()> = control.loads.iter().map(|load| load.clone().run(stops.clone())).collect();
    let mut end = control.told.subscribe();
    let limit = tokio::time::sleep(args.longest);
    tokio::pin!(limit);
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                tokio::spawn(serve(control.clone(), stream));
            },
            Some(_) = running.join_next() => if running.is_empty() {
                control.stopped.send_replace(true);
            },
            _ = end.wait_for(|told| *told) => return Ok(()),
            // Nobody fetches the report any more.
            () = &mut limit => break,
            _ = terminated.recv() => break,
        }
    }
    control.stop.send_replace(true);
    while running.join_next().await.is_some() {}
    println!("{}", control.report());
    Ok(())
}

async fn serve(control: Arc<ControlServer>, stream: TcpStream) {
    let service = service_fn(|request: Request<Incoming>| {
        let control = control.clone();
        async move { Ok::<_, Infallible>(control.answer(request.uri().path()).await) }
    });
    let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    // The caller may ask again.
    if connection.await.is_ok() && *control.stopped.borrow() {
        control.told.send_replace(true);
    }
}

impl ControlServer {
    async fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let (status, content_type, body) = match path {
            "/report" => (StatusCode::OK, "application/json", self.report()),
            "/stop" => {
                self.stop.send_replace(true);
                // This cannot fail, because this struct owns the sender.
                let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
                (StatusCode::OK, "application/json", self.report())
            }
            _ => (StatusCode::NOT_FOUND, "text/plain", "there are /report and /stop\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }

    fn report(&self) -> String {
        let report = ClientReport { loads: self.loads.iter().map(|load| load.report()).collect() };
        serde_json::to_string(&report).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }
}
