//! Bodies that arrive late.

use std::time::Duration;

use futures::Stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Frame};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

type Piece<D, E> = Result<Frame<D>, E>;
/// A piece and when it came.
type Arrived<D, E> = (Instant, Piece<D, E>);

/// Returns `body` with each piece delayed by the lag. When the lag changes, that holds for pieces that wait, too. The
/// order is kept.
pub(super) fn delayed<B>(
    body: B,
    lag: watch::Receiver<Duration>,
) -> StreamBody<impl Stream<Item = Piece<B::Data, B::Error>> + Send>
where
    B: Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Send,
{
    let (arrived, waiting) = mpsc::unbounded_channel();
    tokio::spawn(read(body, arrived));
    StreamBody::new(futures::stream::unfold((waiting, lag), async |(mut waiting, mut lag)| {
        let (at, piece) = waiting.recv().await?;
        due(at, &mut lag).await;
        Some((piece, (waiting, lag)))
    }))
}

/// Reads the body as fast as it comes, and notes when each piece came, until nobody waits for it any more.
async fn read<B>(mut body: B, arrived: mpsc::UnboundedSender<Arrived<B::Data, B::Error>>)
where
    B: Body + Unpin,
{
    loop {
        let piece = tokio::select! {
            piece = body.frame() => piece,
            () = arrived.closed() => return,
        };
        let Some(piece) = piece else { return };
        if arrived.send((Instant::now(), piece)).is_err() {
            return;
        }
    }
}

/// Waits until what came at `at` is as old as the lag.
async fn due(at: Instant, lag: &mut watch::Receiver<Duration>) {
    loop {
        let due = at + *lag.borrow_and_update();
        tokio::select! {
            () = sleep_until(due) => return,
            changed = lag.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use hyper::body::Bytes;

    use super::*;

    #[tokio::test]
    async fn pieces_wait_until_the_lag_is_over() {
        let lag = watch::Sender::new(Duration::from_secs(3600));
        let mut body = Box::pin(delayed(Full::new(Bytes::from_static(b"event")), lag.subscribe()));
        let waits = futures::poll!(std::pin::pin!(body.frame()));
        assert!(waits.is_pending());
        tokio::task::yield_now().await;
        let waits = futures::poll!(std::pin::pin!(body.frame()));
        assert!(waits.is_pending(), "it arrived, and is not due");
        lag.send_replace(Duration::ZERO);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "event");
        assert!(body.frame().await.is_none());
    }
}
