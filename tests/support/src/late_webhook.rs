//! Writes that are made again when a webhook was late.

use std::time::Duration;

use backon::{ConstantBuilder, Retryable};

/// How often a write is made again.
const RETRIES: usize = 3;

/// Makes a write to the API server, and makes it again if a webhook did not answer in time, as a controller of
/// Kubernetes does. The API server has stored nothing then. A busy machine can delay any answer for some seconds.
///
/// # Errors
/// Returns the error of the write. A webhook that cannot be reached, or that denies it, is such an error at once.
pub async fn despite_late_webhook<T, W>(write: impl Fn() -> W) -> kube::Result<T>
where
    W: Future<Output = kube::Result<T>>,
{
    let at_once = ConstantBuilder::default().with_delay(Duration::ZERO).with_max_times(RETRIES);
    let tell = |error: &kube::Error, _| tracing::warn!(%error, "a webhook was late, trying again");
    write.retry(at_once).when(is_late).notify(tell).await
}

fn is_late(error: &kube::Error) -> bool {
    // These are the words of the API server: `failed calling webhook "NAME": failed to call webhook: Post "URL": context
    // deadline exceeded`.
    matches!(error, kube::Error::Api(status)
        if status.message.contains("failed calling webhook") && status.message.contains("deadline exceeded"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kube::core::Status;

    use super::*;

    fn refusal(message: &str) -> kube::Error {
        kube::Error::Api(Status { code: 500, message: message.to_owned(), ..Status::default() }.boxed())
    }

    async fn attempts_of(message: &str, failures: usize) -> (usize, bool) {
        let made = Cell::new(0);
        let write = async || {
            made.set(made.get() + 1);
            if made.get() > failures { Ok(()) } else { Err(refusal(message)) }
        };
        let written = despite_late_webhook(write).await.is_ok();
        (made.get(), written)
    }

    #[tokio::test]
    async fn a_write_is_made_again_only_if_a_webhook_was_late() {
        let late = r#"Internal error occurred: failed calling webhook "create.mutating.podward.io": failed to call webhook: Post "https://10.0.0.1:443/mutate?timeout=2s": context deadline exceeded"#;
        let gone = r#"Internal error occurred: failed calling webhook "create.mutating.podward.io": failed to call webhook: Post "https://10.0.0.1:443/mutate?timeout=2s": dial tcp 10.0.0.1:443: connect: connection refused"#;
        assert_eq!(attempts_of(late, 2).await, (3, true));
        assert_eq!(attempts_of(late, usize::MAX).await, (RETRIES + 1, false));
        assert_eq!(attempts_of(gone, 1).await, (1, false));
        assert_eq!(
            attempts_of("admission webhook denied the request: context deadline exceeded", 1).await,
            (1, false)
        );
    }
}
