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
    /// Checks that no read has timed out since `asked`.
    ///
    /// # Errors
    /// Fails with the timeout of that read, which names the pod that made it.
    pub(crate) fn check(&self, asked: Instant) -> Result<(), ApiError> {
        match &self.0 {
            Some(Timeout { at, what, pod, after }) if *at >= asked => {
                Err(ApiError::TimedOut { what, pod: pod.clone(), after: *after })
            }
            _ => Ok(()),
        }
    }

    /// Notes the end of a read.
    pub(crate) fn ended<T>(&mut self, read: &Result<T, ApiError>) {
        self.0 = match read {
            Err(ApiError::TimedOut { what, pod, after }) => {
                Some(Timeout { at: Instant::now(), what, pod: pod.clone(), after: *after })
            }
            _ => None,
        };
    }
}
