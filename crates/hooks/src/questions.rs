//! The open questions of all pods. Pure: no clock, no network.

pub(crate) mod circuit_breaker;
pub(crate) mod failure;
pub(crate) mod queue;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod stats;
pub(crate) mod table;
