//! The client of the queue.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Method, Request, StatusCode, body::Bytes};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest size of an answer, in bytes.
const MAX_ANSWER: usize = 1024;

/// The number of a task.
pub(crate) type TaskId = u64;

/// A client of the queue.
pub(crate) struct QueueClient {
    http: Client<HttpConnector, Empty<Bytes>>,
    address: String,
    worker: String,
}

impl QueueClient {
    pub(crate) fn new(address: &str, worker: &str) -> Self {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self { http, address: address.to_owned(), worker: worker.to_owned() }
    }

    /// Returns the number of waiting tasks.
    pub(crate) async fn waiting(&self) -> Result<usize> {
        let count = self.ask(Method::GET, "waiting").await?;
        count.parse().with_context(|| format!("{count:?} is not a number of tasks"))
    }

    /// Takes a task. Returns `None` if no task waits.
    pub(crate) async fn take(&self) -> Result<Option<TaskId>> {
        let task = self.ask(Method::POST, &format!("take/{}", self.worker)).await?;
        if task.is_empty() {
            return Ok(None);
        }
        task.parse().map(Some).with_context(|| format!("{task:?} is not the number of a task"))
    }

    pub(crate) async fn done(&self, task: TaskId) -> Result<()> {
        self.ask(Method::POST, &format!("done/{task}/{}", self.worker)).await.map(drop)
    }

    pub(crate) async fn put_back(&self, task: TaskId) -> Result<()> {
        self.ask(Method::POST, &format!("back/{task}/{}", self.worker)).await.map(drop)
    }

    async fn ask(&self, method: Method, path: &str) -> Result<String> {
        let url = format!("http://{}/{path}", self.address);
        let call = async {
            let request = Request::builder().method(method).uri(&url).body(Empty::new())?;
            let response = self.http.request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
            if !matches!(status, StatusCode::OK | StatusCode::NO_CONTENT) {
                bail!("the queue answers {status}");
            }
            Ok(String::from_utf8(body.into())?)
        };
        let answer = tokio::time::timeout(TIMEOUT, call).await.context("the queue does not answer").flatten();
        answer.with_context(|| format!("call the queue at {url}"))
    }
}
