//! Limits on connections, which hold for clients without credentials.
//!
//! A client can open as many connections as it likes and say nothing, or say it slowly. The server therefore
//! distinguishes connections that are *proven* (see [`ConnectionProof`]) from all others. Unproven connections have a
//! part of the places, time out soon, and are replaced by new ones, the oldest first. So a new connection never waits for
//! a place, and clients that prove themselves at once keep theirs.

mod answer;
mod limits;
mod metrics;
mod open;
mod peer;
mod places;
mod shared;
mod table;
mod turns;

pub(crate) use answer::SentAnswer;
pub(crate) use limits::{ConnectionLimits, IdleLimits};
pub(crate) use metrics::{ClosedBy, ConnectionMetrics, HandshakeOutcome};
pub use open::ConnectionProof;
pub(crate) use open::{IdleCheck, OpenConnection, RequestOnConnection};
pub(crate) use peer::Peer;
pub(crate) use places::{PeerPlace, PeerPlaces};
pub(crate) use shared::Connections;
pub(crate) use turns::FairTurns;
