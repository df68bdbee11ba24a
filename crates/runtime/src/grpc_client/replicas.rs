//! Calls to any of several replicas of a server.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{Connect, InvalidEndpoint, Trust};

/// The replicas of a server, each with its own URL. Clones share connections, and the replica that is called first.
///
/// With one URL, for example that of a Service, this is a channel like any other.
#[derive(Clone, Debug)]
pub struct Replicas {
    channels: Arc<[Channel]>,
    /// The replica that answered last is called first, so that one that is down does not delay every call.
    first: Arc<AtomicUsize>,
}

impl Replicas {
    /// The replicas at `urls` (see [`Connect::new`]), with the same `trust`.
    ///
    /// # Errors
    ///
    /// When there is no URL, or one is invalid.
    pub fn new(urls: &[String], trust: Trust) -> Result<Self, InvalidEndpoint> {
        let trust = Arc::new(trust);
        if urls.is_empty() {
            return Connect::new("", trust).and_then(|connect| connect.lazy()).map(Self::of);
        }
        let channels: Result<Vec<Channel>, InvalidEndpoint> =
            urls.iter().map(|url| Connect::new(url, Arc::clone(&trust))?.lazy()).collect();
        Ok(Self { channels: channels?.into(), first: Arc::default() })
    }

    fn of(channel: Channel) -> Self {
        Self { channels: [channel].into(), first: Arc::default() }
    }

    /// Calls one replica after the other until one answers. An error that the server itself returns is an answer.
    ///
    /// The next replica is called when the previous one is down, or has not answered in an equal share of the remaining
    /// `timeout`. A slow one may still answer until the `timeout` has passed. The call must be idempotent, because
    /// several replicas may execute it at the same time.
    ///
    /// # Errors
    ///
    /// The answer, if it is an error; the last failure, if no replica answers.
    pub async fn ask<T, F>(&self, timeout: Duration, call: impl Fn(Channel) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let end = tokio::time::Instant::now() + timeout;
        let (count, first) = (self.channels.len(), self.first.load(Ordering::Relaxed));
        let mut last = Status::unavailable("no replica was called");
        let mut open = FuturesUnordered::new();
        for tried in 0..count {
            let place = (first + tried) % count;
            let answer = call(self.channels[place].clone());
            open.push(async move { (place, answer.await) });
            let is_last = tried + 1 == count;
            let now = tokio::time::Instant::now();
            let share = end.saturating_duration_since(now) / u32::try_from(count - tried).unwrap_or(u32::MAX);
            let until = if is_last { end } else { now + share };
            loop {
                match tokio::time::timeout_at(until, open.next()).await {
                    Ok(Some((_, Err(status)))) if is_down(&status) => last = status,
                    Ok(Some((place, answer))) => {
                        self.first.store(place, Ordering::Relaxed);
                        return answer;
                    }
                    Ok(None) => break,
                    Err(_) => {
                        last = Status::deadline_exceeded("no answer in time");
                        break;
                    }
                }
                if !is_last {
                    break;
                }
            }
        }
        Err(last)
    }
}

/// True if the server can't be reached or can't serve, so that another one may. Errors of the connection have a source.
fn is_down(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
        || status.source().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// Tests in which a replica does not answer wait this long.
    const TIMEOUT: Duration = Duration::from_millis(200);

    fn replicas(count: usize) -> Replicas {
        let urls: Vec<String> = (1..=count).map(|port| format!("https://127.0.0.1:{port}")).collect();
        Replicas::new(&urls, Trust::pem("")).unwrap()
    }

    /// Calls with these answers in turn; `None` never answers.
    async fn ask(replicas: &Replicas, answers: &[Option<Result<u8, Status>>]) -> (Result<u8, Status>, usize) {
        let calls = Mutex::new(answers.iter());
        let answer = replicas.ask(TIMEOUT, |_| {
            let answer = calls.lock().next().expect("no other replica is called").clone();
            async move {
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        });
        let answer = answer.await;
        let left = calls.lock().len();
        (answer, left)
    }

    #[tokio::test]
    async fn the_next_is_called_when_one_is_down() {
        let down = || Some(Err(Status::unavailable("no connection")));
        let (answer, left) = ask(&replicas(3), &[down(), None, Some(Ok(3)), Some(Ok(4))]).await;
        assert_eq!((answer.unwrap(), left), (3, 1));
        let (answer, _) = ask(&replicas(2), &[down(), None]).await;
        assert_eq!(answer.unwrap_err().code(), Code::DeadlineExceeded);
        let (answer, _) = ask(&replicas(1), &[down()]).await;
        assert_eq!(answer.unwrap_err().message(), "no connection");
    }

    #[tokio::test]
    async fn a_slow_one_may_still_answer_after_the_next_was_called() {
        let (calls, next_is_called) = (AtomicUsize::new(0), tokio::sync::Notify::new());
        let replicas = replicas(2);
        let answer = replicas.ask(TIMEOUT, |_| {
            let (call, next_is_called) = (calls.fetch_add(1, Ordering::Relaxed), &next_is_called);
            async move {
                if call == 0 {
                    next_is_called.notified().await;
                    return Ok(call);
                }
                next_is_called.notify_one();
                std::future::pending().await
            }
        });
        assert_eq!(answer.await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_refusal_is_an_answer() {
        let refusal = Some(Err(Status::resource_exhausted("no room")));
        let (answer, left) = ask(&replicas(2), &[refusal, Some(Ok(1))]).await;
        assert_eq!((answer.unwrap_err().code(), left), (Code::ResourceExhausted, 1));
    }

    #[tokio::test]
    async fn the_one_that_answered_last_is_called_first_and_none_gets_all_the_time() {
        let replicas = replicas(2);
        let (answer, _) = ask(&replicas, &[None, Some(Ok(2))]).await;
        assert_eq!((answer.unwrap(), replicas.first.load(Ordering::Relaxed)), (2, 1));
        let (answer, _) = ask(&replicas, &[Some(Err(Status::unavailable(""))), Some(Ok(1))]).await;
        assert_eq!((answer.unwrap(), replicas.first.load(Ordering::Relaxed)), (1, 0));
    }

    #[tokio::test]
    async fn an_invalid_url_is_rejected() {
        assert!(Replicas::new(&[], Trust::pem("")).is_err());
        assert!(Replicas::new(&["https://a:1".to_owned(), "b".to_owned()], Trust::pem("")).is_err());
    }
}
