//! Streams that end when their caller loses the right to them.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use podward_runtime::retry::spread;
use tonic::{Code, Status};

/// The time after which the right of a stream's caller is checked again.
pub(super) const RECHECK_INTERVAL: Duration = Duration::from_secs(30);
/// The part of the time by which a check can be later, so that streams which began together are not checked together.
const RECHECK_SPREAD: f64 = 0.2;

/// The responses of a stream.
pub(super) type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Forwards `responses`. About every `interval` it has `check` ask whether the caller still has its right, and ends with
/// PERMISSION_DENIED if it has not, twice in a row: an authorizer that is asked by the API server and does not answer counts
/// as a denial, too. If the API server does not answer, the stream continues.
pub(super) fn until_revoked<T, F>(
    responses: Responses<T>,
    interval: Duration,
    check: impl Fn() -> F + Send + 'static,
) -> Responses<T>
where
    T: Send + 'static,
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let revoked = Box::pin(async move {
        let mut was_denied = false;
        loop {
            tokio::time::sleep(spread(interval, RECHECK_SPREAD)).await;
            match check().await {
                Err(status) if status.code() == Code::PermissionDenied && was_denied => {
                    return Status::permission_denied(format!("the right was revoked: {}", status.message()));
                }
                Err(status) if status.code() == Code::PermissionDenied => was_denied = true,
                Err(status) => tracing::debug!("the right of a stream's caller was not checked: {status}"),
                Ok(()) => was_denied = false,
            }
        }
    });
    stream::unfold(Some((responses, revoked)), |state| async move {
        let (mut responses, mut revoked) = state?;
        tokio::select! {
            biased;
            status = &mut revoked => Some((Err(status), None)),
            response = responses.next() => Some((response?, Some((responses, revoked)))),
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_stream_ends_when_its_right_is_revoked_and_not_when_the_api_server_is_down() {
        let denied = || Err(Status::permission_denied("user jane may not update hooks"));
        // The last one comes first.
        let answers = vec![
            denied(),
            Err(Status::unavailable("no answer from the API server")),
            denied(),
            Ok(()),
            denied(),
        ];
        let (sender, responses) = tokio::sync::mpsc::unbounded_channel();
        let responses = stream::unfold(responses, |mut responses| async move {
            Some((Ok::<_, Status>(responses.recv().await?), responses))
        });
        let answers = Arc::new(Mutex::new(answers));
        let check = {
            let answers = answers.clone();
            move || std::future::ready(answers.lock().pop().unwrap())
        };
        let began = std::time::Instant::now();
        let mut responses = until_revoked(responses.boxed(), SHORT, check);
        sender.send(1).unwrap();
        assert_eq!(responses.next().await.unwrap().unwrap(), 1);
        let ended = responses.next().await.unwrap().unwrap_err();
        assert_eq!(ended.code(), Code::PermissionDenied);
        assert!(ended.message().contains("revoked: user jane may not update hooks"), "{ended}");
        // The last check ended it.
        assert!(answers.lock().is_empty() && began.elapsed() >= SHORT * 5);
        assert!(responses.next().await.is_none());
        assert!(sender.is_closed(), "the stream behind it is dropped");
    }
}
