//! The exchange with the API server: watches of hooks and namespaces, and the status of hooks.

pub(crate) mod conditions;
pub(crate) mod hooks;
pub(crate) mod namespaces;
pub(crate) mod status;
pub(crate) mod watch_errors;
