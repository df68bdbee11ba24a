//! The maximum number of streams that a replica serves at the same time.

use podward_runtime::places::{NoPlace, Place, Places};
use tonic::Status;

/// The maximum number of streams of one kind, in total and for each owner. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StreamLimit {
    kind: &'static str,
    total: usize,
    of_owner: usize,
    places: Places<String>,
}

/// A counted stream, until it is dropped.
pub(super) type CountedStream = Place<String>;

impl StreamLimit {
    /// Returns a limit of `total` streams, and of `of_owner` for each owner. `kind` is a plural, for messages.
    pub(super) fn new(kind: &'static str, total: usize, of_owner: usize) -> Self {
        Self { kind, total, of_owner, places: Places::new(total, of_owner) }
    }

    /// Counts a stream of `owner`, or one that has no owner, until the returned value is dropped.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the maximum of the owner or of the replica is reached.
    pub(super) fn acquire(&self, owner: Option<&str>) -> Result<CountedStream, Status> {
        self.places.take(owner.map(ToOwned::to_owned)).map_err(|none| {
            let (count, whose) = match none {
                NoPlace::InTotal => (self.total, String::new()),
                NoPlace::OfKey => (self.of_owner, format!(" for {}", owner.unwrap_or_default())),
            };
            Status::resource_exhausted(format!(
                "this replica already serves {count} {}{whose}, the maximum; try again with back-off",
                self.kind
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_can_not_use_up_the_streams_of_others() {
        let limit = StreamLimit::new("watches", 5, 2);
        let mut held = vec![limit.acquire(Some("eve")).unwrap(), limit.acquire(Some("eve")).unwrap()];
        let refused = limit.acquire(Some("eve")).unwrap_err();
        assert!(refused.message().contains("already serves 2 watches for eve"), "{refused}");
        held.pop();
        held.push(limit.acquire(Some("eve")).unwrap());
        // Without an owner, the total counts only.
        held.extend((0..3).map(|_| limit.acquire(None).unwrap()));
        let refused = limit.acquire(Some("jane")).unwrap_err();
        assert!(refused.message().contains("already serves 5 watches,"), "{refused}");
        drop(held);
        assert!(limit.places.are_free(), "nothing is kept");
    }
}
