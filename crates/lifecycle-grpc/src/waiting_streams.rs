//! The streams of callers that are authenticated but not authorized yet.

use podward_runtime::places::{NoPlace, Place, Places};
use tonic::Status;

/// The maximum number of these streams of a replica.
const MAX_STREAMS: usize = 512;
/// The maximum number of these streams of one user. It is the number of streams that a hook can attach.
const MAX_STREAMS_OF_USER: usize = 64;

/// Counts the streams, so that callers without rights can't use up memory or the streams of others. Clones share the
/// count.
#[derive(Clone, Debug)]
pub(super) struct WaitingStreams(Places<String>);

/// A counted stream. It is counted until this is dropped.
pub(super) type WaitingStream = Place<String>;

impl Default for WaitingStreams {
    fn default() -> Self {
        Self(Places::new(MAX_STREAMS, MAX_STREAMS_OF_USER))
    }
}

impl WaitingStreams {
    /// Counts a stream of `user`.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the maximum of the user or of the replica is reached.
    pub(super) fn enter(&self, user: &str) -> Result<WaitingStream, Status> {
        self.0.take(Some(user.to_owned())).map_err(|none| {
            let (whose, count) = match none {
                NoPlace::InTotal => ("this replica", MAX_STREAMS),
                NoPlace::OfKey => (user, MAX_STREAMS_OF_USER),
            };
            Status::resource_exhausted(format!(
                "{whose} already has {count} streams that have not sent `hello`, the maximum; send `hello` immediately, \
                 and attach again with back-off"
            ))
        })
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
        assert!(streams.0.are_free(), "nothing is kept");
    }
}
