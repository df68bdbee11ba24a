//! Places for requests of clients that are not known, in total and for each peer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::peer::Peer;

/// A number of places, of which one peer gets at most half. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct PeerPlaces {
    limit: usize,
    taken: Arc<Mutex<TakenPlaces>>,
}

#[derive(Debug, Default)]
struct TakenPlaces {
    total: usize,
    by_peer: HashMap<Peer, usize>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct PeerPlace {
    peer: Peer,
    taken: Arc<Mutex<TakenPlaces>>,
}

impl PeerPlaces {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, taken: Arc::default() }
    }

    /// Returns a place for `peer`; `None` if all are taken, or half of them by this peer.
    pub(crate) fn take(&self, peer: Peer) -> Option<PeerPlace> {
        let mut taken = self.taken.lock();
        let of_peer = taken.by_peer.get(&peer).copied().unwrap_or_default();
        if taken.total >= self.limit || of_peer >= self.limit.div_ceil(2) {
            return None;
        }
        taken.total += 1;
        taken.by_peer.insert(peer, of_peer + 1);
        Some(PeerPlace { peer, taken: Arc::clone(&self.taken) })
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        taken.total -= 1;
        if let Some(of_peer) = taken.by_peer.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                taken.by_peer.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn one_peer_gets_half_of_the_places() {
        let peer = |last| Peer::from(IpAddr::from([10, 0, 0, last]));
        let places = PeerPlaces::new(4);
        let mut taken = vec![places.take(peer(1)).unwrap(), places.take(peer(1)).unwrap()];
        assert!(places.take(peer(1)).is_none());
        taken.extend([places.take(peer(2)).unwrap(), places.take(peer(3)).unwrap()]);
        assert!(places.take(peer(4)).is_none());
        taken.remove(0);
        assert!(places.take(peer(4)).is_some());
        taken.clear();
        let left = places.taken.lock();
        assert!(left.total == 0 && left.by_peer.is_empty());
    }
}
