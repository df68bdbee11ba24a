//! The responses of the server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{CONNECTION, CONTENT_TYPE, HeaderValue},
};

use crate::settings::ServerSettings;

/// The longest wait that a request may ask for. A request must be able to end within a grace period.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The server's state.
#[derive(Debug)]
pub(crate) struct App {
    greeting: String,
    takes_requests: AtomicBool,
    requests: AtomicUsize,
    connections: AtomicUsize,
}

/// Counts a request until it is dropped.
struct CountedRequest<'a>(&'a AtomicUsize);

impl<'a> CountedRequest<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl Drop for CountedRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts an open connection until it is dropped.
pub(crate) struct OpenConnection(Arc<App>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

impl App {
    pub(crate) fn new(settings: &ServerSettings) -> Self {
        let greeting = format!("{} {}\n", settings.version, settings.pod);
        Self {
            greeting,
            takes_requests: AtomicBool::new(true),
            requests: AtomicUsize::default(),
            connections: AtomicUsize::default(),
        }
    }

    /// Counts a connection.
    pub(crate) fn connected(self: &Arc<Self>) -> OpenConnection {
        self.connections.fetch_add(1, Ordering::SeqCst);
        OpenConnection(self.clone())
    }

    /// Makes `/readyz` fail, and closes each connection after its next response.
    pub(crate) fn drain(&self) {
        self.takes_requests.store(false, Ordering::SeqCst);
    }

    fn is_draining(&self) -> bool {
        !self.takes_requests.load(Ordering::SeqCst)
    }

    /// Answers a request for `path` with `query`.
    pub(crate) async fn answer(&self, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
        let mut response = match path {
            "/" | "/slow" => self.serve(path, query).await,
            "/readyz" if self.is_draining() => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned()),
            "/readyz" => text(StatusCode::OK, "ready\n".to_owned()),
            "/drain" => {
                self.drain();
                text(StatusCode::OK, "draining\n".to_owned())
            }
            "/in-flight" => text(StatusCode::OK, self.in_flight(query)),
            _ => {
                let paths = "there are /, /slow?ms=N, /readyz, /drain and /in-flight\n";
                text(StatusCode::NOT_FOUND, paths.to_owned())
            }
        };
        if self.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn serve(&self, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
        let _counted = CountedRequest::new(&self.requests);
        if path == "/slow" {
            match wait_of(query) {
                Ok(wait) => tokio::time::sleep(wait).await,
                Err(message) => return text(StatusCode::BAD_REQUEST, message),
            }
        }
        text(StatusCode::OK, self.greeting.clone())
    }

    /// Returns the number of connections, except that of this request: a kept-alive connection can carry a request at
    /// any time. With `?of=requests`, returns only the number of requests without a response.
    fn in_flight(&self, query: Option<&str>) -> String {
        let in_flight = if query == Some("of=requests") {
            self.requests.load(Ordering::SeqCst)
        } else {
            self.connections.load(Ordering::SeqCst).saturating_sub(1)
        };
        format!("{in_flight}\n")
    }
}

fn wait_of(query: Option<&str>) -> Result<Duration, String> {
    let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == "ms").ok_or_else(|| "/slow needs ?ms=N\n".to_owned())?;
    let wait = value
        .parse()
        .map(Duration::from_millis)
        .map_err(|_| format!("{value:?} is no number of milliseconds\n"))?;
    if wait > LONGEST_WAIT {
        return Err(format!("at most {} ms\n", LONGEST_WAIT.as_millis()));
    }
    Ok(wait)
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::settings::Shutdown;

    fn app() -> Arc<App> {
        Arc::new(App::new(&ServerSettings {
            listen: String::new(),
            version: "v1".to_owned(),
            pod: "web-0".to_owned(),
            shutdown: Shutdown::Graceful,
        }))
    }

    async fn get(app: &App, path: &str, query: Option<&str>) -> (StatusCode, String) {
        let response = app.answer(path, query).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn reports_its_name_and_version() {
        assert_eq!(get(&app(), "/", None).await, (StatusCode::OK, "v1 web-0\n".to_owned()));
        assert_eq!(get(&app(), "/slow", Some("a=b&ms=1")).await, (StatusCode::OK, "v1 web-0\n".to_owned()));
    }

    #[tokio::test]
    async fn refuses_waits_that_make_no_sense() {
        for query in [None, Some(""), Some("ms=x"), Some("ms=-1"), Some("ms=60001")] {
            assert_eq!(get(&app(), "/slow", query).await.0, StatusCode::BAD_REQUEST, "{query:?}");
        }
    }

    #[tokio::test]
    async fn drain_ends_readiness_and_connections_and_nothing_else() {
        let app = app();
        assert_eq!(get(&app, "/readyz", None).await.0, StatusCode::OK);
        assert_eq!(app.answer("/", None).await.headers().get(CONNECTION), None);
        assert_eq!(get(&app, "/drain", None).await.0, StatusCode::OK);
        assert_eq!(get(&app, "/readyz", None).await.0, StatusCode::SERVICE_UNAVAILABLE);
        let answer = app.answer("/", None).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers().get(CONNECTION).unwrap(), "close");
    }

    #[tokio::test]
    async fn counts_what_is_in_flight() {
        let app = app();
        let (mine, others) = (app.connected(), app.connected());
        assert_eq!(get(&app, "/in-flight", None).await.1, "1\n");
        let slow = app.answer("/slow", Some("ms=50"));
        let mut slow = std::pin::pin!(slow);
        assert!(is_pending(slow.as_mut()).await, "a slow answer is there at once");
        assert_eq!(get(&app, "/in-flight", Some("of=requests")).await.1, "1\n");
        slow.await;
        drop(others);
        assert_eq!(get(&app, "/in-flight", Some("of=requests")).await.1, "0\n");
        assert_eq!(get(&app, "/in-flight", None).await.1, "0\n");
        drop(mine);
    }

    /// Returns whether the future is still pending after one poll.
    async fn is_pending<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
        std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_pending()))
            .await
    }
}
