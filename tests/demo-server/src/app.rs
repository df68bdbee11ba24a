//! What the server answers.

use std::{
    env, fs,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use http_body_util::Full;
use hyper::{Response, StatusCode, body::Bytes, header::CONTENT_TYPE};

/// Longer waits than this are refused: a request must be able to end within a grace period.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How the server was started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) listen: String,
    pub(crate) version: String,
    pub(crate) pod: String,
}

impl Settings {
    /// Reads the environment and then `args`. The error says which argument is wrong.
    pub(crate) fn from_args(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut settings = Self {
            listen: env::var("LISTEN").unwrap_or_else(|_| "0.0.0.0:8080".to_owned()),
            version: env::var("VERSION").unwrap_or_else(|_| "unknown".to_owned()),
            pod: env::var("POD_NAME").unwrap_or_else(|_| host_name()),
        };
        let mut args = args;
        while let Some(arg) = args.next() {
            let target = match arg.as_str() {
                "--listen" => &mut settings.listen,
                "--version-text" => &mut settings.version,
                _ => {
                    return Err(format!(
                        "unknown argument {arg}: use --listen ADDR:PORT or --version-text TEXT"
                    ));
                }
            };
            *target = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        }
        Ok(settings)
    }
}

fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// The server's state.
#[derive(Debug)]
pub(crate) struct App {
    greeting: String,
    takes_requests: AtomicBool,
}

impl App {
    pub(crate) fn new(settings: &Settings) -> Self {
        let greeting = format!("{} {}\n", settings.version, settings.pod);
        Self { greeting, takes_requests: AtomicBool::new(true) }
    }

    /// From now on `/readyz` says no.
    pub(crate) fn drain(&self) {
        self.takes_requests.store(false, Ordering::SeqCst);
    }

    /// Answers a request for `path` with `query`.
    pub(crate) async fn answer(&self, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
        match path {
            "/" => text(StatusCode::OK, self.greeting.clone()),
            "/slow" => match wait_of(query) {
                Ok(wait) => {
                    tokio::time::sleep(wait).await;
                    text(StatusCode::OK, self.greeting.clone())
                }
                Err(message) => text(StatusCode::BAD_REQUEST, message),
            },
            "/readyz" if self.takes_requests.load(Ordering::SeqCst) => {
                text(StatusCode::OK, "ready\n".to_owned())
            }
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned()),
            "/drain" => {
                self.drain();
                text(StatusCode::OK, "draining\n".to_owned())
            }
            _ => text(StatusCode::NOT_FOUND, "there are /, /slow?ms=N, /readyz and /drain\n".to_owned()),
        }
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
    response
        .headers_mut()
        .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn app() -> App {
        App::new(&Settings { listen: String::new(), version: "v1".to_owned(), pod: "web-0".to_owned() })
    }

    async fn get(app: &App, path: &str, query: Option<&str>) -> (StatusCode, String) {
        let response = app.answer(path, query).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn says_who_it_is() {
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
    async fn drain_ends_readiness_and_nothing_else() {
        let app = app();
        assert_eq!(get(&app, "/readyz", None).await.0, StatusCode::OK);
        assert_eq!(get(&app, "/drain", None).await.0, StatusCode::OK);
        assert_eq!(get(&app, "/readyz", None).await.0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(get(&app, "/", None).await.0, StatusCode::OK);
    }

    #[test]
    fn arguments_win_and_strange_ones_are_refused() {
        let args = ["--listen", "127.0.0.1:1", "--version-text", "v9"].map(str::to_owned);
        let settings = Settings::from_args(args.into_iter()).unwrap();
        assert_eq!((settings.listen.as_str(), settings.version.as_str()), ("127.0.0.1:1", "v9"));
        assert!(Settings::from_args(["--what".to_owned()].into_iter()).is_err());
        assert!(Settings::from_args(["--listen".to_owned()].into_iter()).is_err());
    }
}
