//! The retry policies of all services, and the timeout of requests to the API server.
//!
//! ```no_run
//! # async fn write() -> Result<(), kube::Error> { Ok(()) }
//! # async fn example() -> Result<(), kube::Error> {
//! use podward_runtime::retry::{self, Retryable};
//!
//! let is_conflict = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.is_conflict());
//! write.retry(retry::CONFLICT).when(is_conflict).await
//! # }
//! ```

use std::time::Duration;

pub use backon::{BackoffBuilder, ExponentialBuilder, Retryable};
use podward_core::webhook_path::without_webhook_secrets;

/// The timeout of one request to the API server.
pub const API_TIMEOUT: Duration = Duration::from_secs(10);

/// For a write that lost against another writer: read the object again, decide again, write again.
pub const CONFLICT: ExponentialBuilder =
    jittered(Duration::from_millis(10), Duration::from_millis(500)).with_max_times(8);
/// For a watch, a list or a write that failed at the API server.
pub const API_SERVER: ExponentialBuilder = jittered(Duration::from_millis(500), Duration::from_secs(30));
/// For a call to a hook or another service, while something waits for it.
pub const PEER: ExponentialBuilder = jittered(Duration::from_millis(250), Duration::from_secs(5));
/// For a call to a hook or another service, while nothing waits for it.
pub const IDLE_PEER: ExponentialBuilder = jittered(Duration::from_millis(250), Duration::from_secs(30));

/// Returns a back-off without a last attempt. The delay doubles from `first` to `longest`. Each delay is chosen at
/// random between half of it and all of it, so that requests which failed together are not retried together.
#[must_use]
pub const fn jittered(first: Duration, longest: Duration) -> ExponentialBuilder {
    // backon chooses between a delay and its double.
    ExponentialBuilder::new()
        .with_min_delay(half(first))
        .with_max_delay(half(longest))
        .without_max_times()
        .with_jitter()
}

const fn half(delay: Duration) -> Duration {
    match delay.checked_div(2) {
        Some(half) => half,
        None => delay,
    }
}

/// Returns the delay after so many `failures` in a row, for callers that keep the count. 0 counts as 1.
#[must_use]
pub fn delay_after(policy: ExponentialBuilder, failures: u32) -> Duration {
    // Every policy reaches its longest delay before that.
    let doublings = failures.clamp(1, 32) - 1;
    let mut delays = policy.without_max_times().build();
    delays.nth(doublings as usize).unwrap_or(Duration::MAX)
}

/// Returns a time between `delay` and `delay * (1 + part)`, chosen at random. It spreads events that are due at the
/// same moment.
#[must_use]
pub fn spread(delay: Duration, part: f64) -> Duration {
    delay.mul_f64(1.0 + part * fastrand::f64())
}

/// A request to the API server failed. The caller's error says what the request was to do.
#[derive(Debug, thiserror::Error)]
pub enum ApiCallError {
    /// The API server answered with an error, or could not be reached. The error has no secrets of webhook paths.
    #[error("{0}")]
    Failed(Box<kube::Error>),
    /// The API server did not answer in time. A write may have been done all the same.
    #[error("no answer from the API server within {0:?}")]
    TimedOut(Duration),
}

impl ApiCallError {
    /// Returns the HTTP status code of the API server's answer; `None` if there was no answer.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            ApiCallError::Failed(error) => match &**error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            ApiCallError::TimedOut(_) => None,
        }
    }

    /// True if another writer was faster (409).
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// True if there is no such object (404).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }
}

/// Waits for the answer to one request to the API server, at most [`API_TIMEOUT`].
///
/// # Errors
///
/// When the API server answers with an error, can't be reached, or does not answer in time.
pub async fn api_call<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, ApiCallError> {
    api_call_within(API_TIMEOUT, call).await
}

/// As [`api_call`], with a timeout of its own.
///
/// # Errors
///
/// As [`api_call`].
pub async fn api_call_within<T>(
    timeout: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApiCallError> {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(ApiCallError::Failed(Box::new(without_secrets(error)))),
        Err(_) => Err(ApiCallError::TimedOut(timeout)),
    }
}

/// Removes the secrets of webhook paths. The API server writes them into its error about a webhook that it can't call:
/// into the message, and into the causes again.
fn without_secrets(mut error: kube::Error) -> kube::Error {
    if let kube::Error::Api(status) = &mut error {
        let causes = status.details.iter_mut().flat_map(|details| &mut details.causes);
        for text in causes.map(|cause| &mut cause.message).chain([&mut status.message]) {
            *text = without_webhook_secrets(text).into_owned();
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use podward_core::webhook_path::PathSecret;

    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_are_jittered() {
        let mut nominal = Duration::from_millis(250);
        for failures in 1..40 {
            let delay = delay_after(PEER, failures);
            assert!(delay >= nominal / 2 && delay <= nominal, "{failures}: {delay:?} of {nominal:?}");
            nominal = (nominal * 2).min(Duration::from_secs(5));
        }
        assert!(delay_after(PEER, 0) <= Duration::from_millis(250));
        let delays: Vec<_> = (0..8).map(|_| delay_after(API_SERVER, 9)).collect();
        assert!(delays.windows(2).any(|pair| pair[0] != pair[1]), "{delays:?}");
        assert_eq!(CONFLICT.build().count(), 8);
    }

    #[test]
    fn a_delay_is_spread_by_a_part_of_it() {
        let delay = Duration::from_secs(10);
        for _ in 0..100 {
            assert!((delay..=delay.mul_f64(1.1)).contains(&spread(delay, 0.1)));
        }
    }

    #[tokio::test]
    async fn an_error_has_the_code_of_the_answer() {
        assert_eq!(api_call(async { Ok(1) }).await.unwrap(), 1);
        let never = std::future::pending::<kube::Result<()>>();
        let error = api_call_within(Duration::from_millis(1), never).await.unwrap_err();
        assert_eq!(error.to_string(), "no answer from the API server within 1ms");
        assert_eq!(error.code(), None);
        let path = PathSecret::of_random([0xab; 32]).path("/mutate");
        let url = format!(
            "failed calling webhook: Post \"https://mutating-webhook.podward-system.svc:443{path}\": EOF"
        );
        // The API server repeats the text of an internal error as its cause.
        let mut status = kube::core::Status::failure(&url, "InternalError").with_code(500);
        let details = serde_json::json!({"causes": [{"message": url}]});
        status.details = Some(serde_json::from_value(details).unwrap());
        let error = api_call(async { Err::<(), _>(kube::Error::Api(status.boxed())) }).await.unwrap_err();
        assert!(error.to_string().contains(".svc:443/<secret>/mutate"), "{error}");
        assert!(!format!("{error} {error:?}").contains("abab"), "callers do not get the secret: {error:?}");
        let status =
            kube::core::Status::failure("pods \"web-0\" not found", "NotFound").with_code(404).boxed();
        let error = api_call(async { Err::<(), _>(kube::Error::Api(status)) }).await.unwrap_err();
        assert!(error.is_not_found() && !error.is_conflict());
        assert!(error.to_string().contains("web-0"), "{error}");
    }
}
