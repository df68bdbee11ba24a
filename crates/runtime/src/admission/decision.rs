//! Decisions, and the bounds on those that wait for something from elsewhere.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::response::AdmissionResponse;

/// An answer leaves us this much before the API server stops waiting for it, at least; a fifth of its patience if that is more.
const LEAST_MARGIN: Duration = Duration::from_millis(500);

type Work<'a> =
    Box<dyn FnOnce(Instant) -> Pin<Box<dyn Future<Output = AdmissionResponse> + Send + 'a>> + Send + 'a>;

/// What a webhook says to a review.
pub enum Decision<'a> {
    /// The answer.
    Now(AdmissionResponse),
    /// The answer needs something from elsewhere. Made by [`Decision::later`].
    Later(Later<'a>),
}

/// A decision that is yet to be made.
pub struct Later<'a>(Work<'a>);

impl<'a> Decision<'a> {
    /// A decision that waits for something. `work` gets the instant at which it is dropped if it isn't done; the caller is told 429
    /// then, as also when too many decisions are waiting already.
    pub fn later<W, F>(work: W) -> Self
    where
        W: FnOnce(Instant) -> F + Send + 'a,
        F: Future<Output = AdmissionResponse> + Send + 'a,
    {
        Self::Later(Later(Box::new(move |deadline| Box::pin(work(deadline)))))
    }
}

impl Later<'_> {
    /// Makes it: for a decision that is part of another one. The bounds are those of the other.
    pub async fn make(self, deadline: Instant) -> AdmissionResponse {
        (self.0)(deadline).await
    }
}

impl From<AdmissionResponse> for Decision<'_> {
    fn from(response: AdmissionResponse) -> Self {
        Self::Now(response)
    }
}

/// Why a decision was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hindrance {
    /// Too many are waiting.
    Busy,
    /// It took too long.
    Late,
}

impl Hindrance {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Hindrance::Busy => "busy",
            Hindrance::Late => "late",
        }
    }

    /// Always one that callers retry: nothing was decided against the write.
    pub(super) fn response(self) -> AdmissionResponse {
        AdmissionResponse::try_again(match self {
            Hindrance::Busy => {
                "Podward has too many requests under way to decide on this one now; try again".to_owned()
            }
            Hindrance::Late => {
                "Podward could not decide in the time that the API server allows; try again".to_owned()
            }
        })
    }
}

/// The room for decisions that wait.
#[derive(Debug)]
pub(super) struct Waiting(Semaphore);

impl Waiting {
    pub(super) fn new(most: usize) -> Self {
        Self(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))
    }

    /// Makes a decision, until `deadline`. There is no queue: one too many is refused at once.
    pub(super) async fn run(
        &self,
        later: Later<'_>,
        deadline: Instant,
    ) -> Result<AdmissionResponse, Hindrance> {
        let _room = self.0.try_acquire().map_err(|_| Hindrance::Busy)?;
        tokio::time::timeout_at(deadline.into(), later.make(deadline)).await.map_err(|_| Hindrance::Late)
    }
}

/// How long a decision may take: most of what the API server says it waits (`timeout=10s` in the query, which is the
/// `timeoutSeconds` of the webhook configuration), and never more than it; `default` when it says nothing that can be read.
pub(super) fn deadline(query: Option<&str>, default: Duration) -> Duration {
    let parameters = query.unwrap_or_default().split('&');
    let timeout = parameters.filter_map(|pair| pair.strip_prefix("timeout=")).find_map(go_duration);
    timeout.map_or(default, |timeout| timeout.saturating_sub(LEAST_MARGIN.max(timeout / 5)))
}

/// Reads the durations that Go writes for whole seconds, up to the 30 that a webhook may take: `30s`.
fn go_duration(text: &str) -> Option<Duration> {
    let seconds: u64 = text.strip_suffix('s')?.parse().ok()?;
    (seconds <= 30).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const DEFAULT: Duration = Duration::from_secs(7);

    #[test]
    fn the_answer_leaves_before_the_api_server_gives_up() {
        for (query, milliseconds) in [
            (Some("timeout=10s"), 8000),
            (Some("a=b&timeout=2s"), 1500),
            (Some("timeout=30s"), 24_000),
            (Some("timeout=0s"), 0),
            (None, 7000),
            (Some("timeout=1m0s"), 7000),
            (Some("timeout=99999999999999999999s"), 7000),
            (Some("timeout=-1s"), 7000),
            (Some("timeout="), 7000),
            (Some("mytimeout=1s"), 7000),
        ] {
            assert_eq!(deadline(query, DEFAULT), Duration::from_millis(milliseconds), "{query:?}");
        }
    }

    fn later(work: impl Future<Output = AdmissionResponse> + Send + 'static) -> Later<'static> {
        match Decision::later(|_| work) {
            Decision::Later(later) => later,
            Decision::Now(_) => unreachable!(),
        }
    }

    #[tokio::test]
    async fn one_too_many_is_refused_at_once() {
        let waiting = Arc::new(Waiting::new(1));
        let far = Instant::now() + Duration::from_secs(3600);
        let (tell, told) = tokio::sync::oneshot::channel::<()>();
        let first = tokio::spawn({
            let waiting = Arc::clone(&waiting);
            async move {
                let work = async move {
                    told.await.unwrap();
                    AdmissionResponse::allow()
                };
                waiting.run(later(work), far).await
            }
        });
        while waiting.0.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = waiting.run(later(std::future::pending()), far).await.unwrap_err();
        assert_eq!((refused, refused.response().code), (Hindrance::Busy, 429));
        tell.send(()).unwrap();
        assert!(first.await.unwrap().unwrap().allowed);
        // Its room is free again, and what takes too long is dropped.
        let late = waiting.run(later(std::future::pending()), Instant::now()).await.unwrap_err();
        assert_eq!((late, waiting.0.available_permits()), (Hindrance::Late, 1));
    }
}
