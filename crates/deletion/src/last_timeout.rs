//! The timeout of a read for which several pods wait.

use std::time::{Duration, Instant};

use podward_kube_util::{ApiError, PodKey};

/// The timeout of the last read. The pods that waited for that read fail with it: otherwise they would repeat it one after
/// the other.
#[derive(Debug, Default)]
pub(crate) struct LastTimeout(Option<Timeout>);

#[derive(Debug)]
struct Timeout {
    at: Instant,
    what: &'static str,
    pod: PodKey,
    after: Duration,
}

impl LastTimeout {
    /// Returns what `read` returns, for a pod that has asked at `asked`.
    ///
    /// # Errors
    /// Fails if the read fails, and without a read if one has timed out since then: with that timeout, which names the
    /// pod that made the read.
    pub(crate) async fn read<T>(
        &mut self,
        asked: Instant,
        read: impl AsyncFnOnce() -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        if let Some(Timeout { at, what, pod, after }) = &self.0
            && *at >= asked
        {
            return Err(ApiError::TimedOut { what, pod: pod.clone(), after: *after });
        }
        let result = read().await;
        self.0 = match &result {
            Err(ApiError::TimedOut { what, pod, after }) => {
                Some(Timeout { at: Instant::now(), what, pod: pod.clone(), after: *after })
            }
            _ => None,
        };
        result
    }
}
