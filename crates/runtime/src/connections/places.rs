//! Places for requests of clients that are not known, in total and for each peer.

use super::peer::Peer;
use crate::places::{Place, Places};

/// A number of places, of which one peer gets at most half. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct PeerPlaces(Places<Peer>);

/// A place, until it is dropped.
pub(crate) type PeerPlace = Place<Peer>;

impl PeerPlaces {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Places::new(limit, limit.div_ceil(2)))
    }

    /// Returns a place for `peer`; `None` if all are taken, or half of them by this peer.
    pub(crate) fn take(&self, peer: Peer) -> Option<PeerPlace> {
        self.0.take(Some(peer)).ok()
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
        assert!(places.0.are_free());
    }
}
