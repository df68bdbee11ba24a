//! Decisions, and the limits on deferred ones.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::response::AdmissionResponse;

/// An answer is sent at least this long before the API server's timeout; a fifth of that timeout if that is longer.
const MIN_MARGIN: Duration = Duration::from_millis(500);

type Work<'a> =
    Box<dyn FnOnce(Instant) -> Pin<Box<dyn Future<Output = AdmissionResponse> + Send + 'a>> + Send + 'a>;

/// The decision of a webhook about a review.
pub enum AdmissionDecision<'a> {
    /// The answer.
    Now(AdmissionResponse),
    /// The answer needs to wait for something. See [`AdmissionDecision::defer`].
    Deferred(DeferredDecision<'a>),
}

/// A decision that is still to be made.
pub struct DeferredDecision<'a>(Work<'a>);

impl<'a> AdmissionDecision<'a> {
    /// Returns a decision that waits for something. `work` gets its deadline. If it is not done by then it is dropped
    /// and the caller gets 429. The caller also gets 429 if too many decisions are waiting.
    pub fn defer<W, F>(work: W) -> Self
    where
        W: FnOnce(Instant) -> F + Send + 'a,
        F: Future<Output = AdmissionResponse> + Send + 'a,
    {
        Self::Deferred(DeferredDecision(Box::new(move |deadline| Box::pin(work(deadline)))))
    }
}

impl DeferredDecision<'_> {
    /// Makes the decision as a part of another one. The limits of the other one apply.
    pub async fn make(self, deadline: Instant) -> AdmissionResponse {
        (self.0)(deadline).await
    }
}

impl From<AdmissionResponse> for AdmissionDecision<'_> {
    fn from(response: AdmissionResponse) -> Self {
        Self::Now(response)
    }
}

/// The reason for which a deferred decision was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeferralFailure {
    /// Too many decisions are waiting.
    Busy,
    /// It took too long.
    Late,
}

impl DeferralFailure {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            DeferralFailure::Busy => "busy",
            DeferralFailure::Late => "late",
        }
    }

    /// Returns a response after which callers retry, because nothing was decided against the write.
    pub(super) fn response(self) -> AdmissionResponse {
        AdmissionResponse::try_again(match self {
            DeferralFailure::Busy => {
                "Podward has too many requests under way to decide on this one now; try again".to_owned()
            }
            DeferralFailure::Late => {
                "Podward could not decide in the time that the API server allows; try again".to_owned()
            }
        })
    }
}

/// Makes deferred decisions, a limited number at a time.
#[derive(Debug)]
pub(super) struct DeferredDecisions(Semaphore);

impl DeferredDecisions {
    pub(super) fn new(max: usize) -> Self {
        Self(Semaphore::new(max.min(Semaphore::MAX_PERMITS)))
    }

    /// Makes a decision, until `deadline`. There is no queue: if the limit is reached, it fails at once.
    pub(super) async fn run(
        &self,
        decision: DeferredDecision<'_>,
        deadline: Instant,
    ) -> Result<AdmissionResponse, DeferralFailure> {
        let _permit = self.0.try_acquire().map_err(|_| DeferralFailure::Busy)?;
        tokio::time::timeout_at(deadline.into(), decision.make(deadline))
            .await
            .map_err(|_| DeferralFailure::Late)
    }
}

/// Returns the time that a decision may take: most of the API server's timeout (`timeout=10s` in the query, which is
/// `timeoutSeconds` of the webhook configuration); `default` if the query has no readable timeout.
pub(super) fn decision_timeout(query: Option<&str>, default: Duration) -> Duration {
    let parameters = query.unwrap_or_default().split('&');
    let timeout = parameters.filter_map(|pair| pair.strip_prefix("timeout=")).find_map(go_duration);
    timeout.map_or(default, |timeout| timeout.saturating_sub(MIN_MARGIN.max(timeout / 5)))
}

/// Parses a Go duration of whole seconds, as in `30s`; `None` if it is anything else, or more than the 30 s that a
/// webhook may take.
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
            assert_eq!(decision_timeout(query, DEFAULT), Duration::from_millis(milliseconds), "{query:?}");
        }
    }

    fn deferred(work: impl Future<Output = AdmissionResponse> + Send + 'static) -> DeferredDecision<'static> {
        match AdmissionDecision::defer(|_| work) {
            AdmissionDecision::Deferred(decision) => decision,
            AdmissionDecision::Now(_) => unreachable!(),
        }
    }

    #[tokio::test]
    async fn a_decision_beyond_the_limit_is_refused_at_once() {
        let waiting = Arc::new(DeferredDecisions::new(1));
        let far = Instant::now() + Duration::from_secs(3600);
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        let first = tokio::spawn({
            let waiting = Arc::clone(&waiting);
            async move {
                let work = async move {
                    finished.await.unwrap();
                    AdmissionResponse::allow()
                };
                waiting.run(deferred(work), far).await
            }
        });
        while waiting.0.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = waiting.run(deferred(std::future::pending()), far).await.unwrap_err();
        assert_eq!((refused, refused.response().code), (DeferralFailure::Busy, 429));
        finish.send(()).unwrap();
        assert!(first.await.unwrap().unwrap().allowed);
        // Its place is free again, and a decision that takes too long is dropped.
        let late = waiting.run(deferred(std::future::pending()), Instant::now()).await.unwrap_err();
        assert_eq!((late, waiting.0.available_permits()), (DeferralFailure::Late, 1));
    }
}
