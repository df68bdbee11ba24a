//! The calls to hook servers and to attached hook systems.

pub(crate) mod attachment;
mod connector;
pub(crate) mod credentials;
pub(crate) mod driver;
pub(crate) mod endpoint;
pub(crate) mod probe;
pub(crate) mod token;
