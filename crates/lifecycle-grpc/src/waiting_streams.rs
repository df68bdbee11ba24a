//! The streams of callers that are authenticated but not authorized yet.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tonic::Status;

/// The maximum number of these streams of a replica.
const MAX_STREAMS: usize = 512;
/// The maximum number of these streams of one user. It is the number of streams that a hook can attach.
const MAX_STREAMS_OF_USER: usize = 64;

/// Counts the streams, so that callers without rights can't use up memory or the streams of others. Clones share the
/// count.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingStreams {
    by_user: Arc<Mutex<HashMap<String, usize>>>,
}

/// A counted stream. It is counted until this is dropped.
#[derive(Debug)]
pub(super) struct WaitingStream {
    streams: WaitingStreams,
    user: String,
}

impl WaitingStreams {
    /// Counts a stream of `user`.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the maximum of the user or of the replica is reached.
    pub(super) fn enter(&self, user: &str) -> Result<WaitingStream, Status> {
        let mut by_user = self.by_user.lock();
        let full = |whose: &str, count: usize| {
            Status::resource_exhausted(format!(
                "{whose} already has {count} streams that have not sent `hello`, the maximum; send `hello` immediately, \
                 and attach again with back-off"
            ))
        };
        if by_user.values().sum::<usize>() >= MAX_STREAMS {
            return Err(full("this replica", MAX_STREAMS));
        }
        let count = by_user.entry(user.to_owned()).or_default();
        if *count >= MAX_STREAMS_OF_USER {
            return Err(full(user, MAX_STREAMS_OF_USER));
        }
        *count += 1;
        Ok(WaitingStream { streams: self.clone(), user: user.to_owned() })
    }
}

impl Drop for WaitingStream {
    fn drop(&mut self) {
        let mut by_user = self.streams.by_user.lock();
        if let Some(count) = by_user.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_can_not_use_up_the_streams_of_others() {
        let streams = WaitingStreams::default();
        let mut held: Vec<_> = (0..MAX_STREAMS_OF_USER).map(|_| streams.enter("eve").unwrap()).collect();
        assert!(streams.enter("eve").unwrap_err().message().starts_with("eve already has 64 streams"));
        drop(streams.enter("jane").unwrap());
        held.pop();
        held.push(streams.enter("eve").unwrap());
        for user in 1..MAX_STREAMS / MAX_STREAMS_OF_USER {
            held.extend((0..MAX_STREAMS_OF_USER).map(|_| streams.enter(&format!("eve-{user}")).unwrap()));
        }
        assert!(streams.enter("jane").unwrap_err().message().starts_with("this replica already has 512"));
        drop(held);
        assert!(streams.by_user.lock().is_empty(), "nothing is kept");
    }
}
