//! The maximum number of streams that a replica serves at the same time.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tonic::Status;

/// The maximum number of streams of one kind, in total and for each owner. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StreamLimit {
    kind: &'static str,
    total: usize,
    of_owner: usize,
    counted: Arc<Mutex<StreamCounts>>,
}

#[derive(Debug, Default)]
struct StreamCounts {
    total: usize,
    by_owner: HashMap<String, usize>,
}

/// A counted stream, until it is dropped.
#[derive(Debug)]
pub(super) struct CountedStream {
    owner: Option<String>,
    counted: Arc<Mutex<StreamCounts>>,
}

impl StreamLimit {
    /// Returns a limit of `total` streams, and of `of_owner` for each owner. `kind` is a plural, for messages.
    pub(super) fn new(kind: &'static str, total: usize, of_owner: usize) -> Self {
        Self { kind, total, of_owner, counted: Arc::default() }
    }

    /// Counts a stream of `owner`, or one that has no owner, until the returned value is dropped.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the maximum of the owner or of the replica is reached.
    pub(super) fn acquire(&self, owner: Option<&str>) -> Result<CountedStream, Status> {
        let Self { kind, total, of_owner, counted } = self;
        let mut counts = counted.lock();
        let full = |whose: &str, count: usize| {
            Status::resource_exhausted(format!(
                "this replica already serves {count} {kind}{whose}, the maximum; try again with back-off"
            ))
        };
        if counts.total >= *total {
            return Err(full("", *total));
        }
        if let Some(owner) = owner {
            let count = counts.by_owner.entry(owner.to_owned()).or_default();
            if *count >= *of_owner {
                return Err(full(&format!(" of {owner}"), *of_owner));
            }
            *count += 1;
        }
        counts.total += 1;
        Ok(CountedStream { owner: owner.map(ToOwned::to_owned), counted: Arc::clone(counted) })
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        let mut counts = self.counted.lock();
        counts.total -= 1;
        if let Some(owner) = &self.owner
            && let Some(count) = counts.by_owner.get_mut(owner)
        {
            *count -= 1;
            if *count == 0 {
                counts.by_owner.remove(owner);
            }
        }
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
        assert!(refused.message().contains("already serves 2 watches of eve"), "{refused}");
        held.pop();
        held.push(limit.acquire(Some("eve")).unwrap());
        // Without an owner, the total counts only.
        held.extend((0..3).map(|_| limit.acquire(None).unwrap()));
        let refused = limit.acquire(Some("jane")).unwrap_err();
        assert!(refused.message().contains("already serves 5 watches,"), "{refused}");
        drop(held);
        let counts = limit.counted.lock();
        assert!(counts.total == 0 && counts.by_owner.is_empty(), "nothing is kept");
    }
}
