//! The LifecycleHooks and namespaces that the API server has, compiled.

pub(crate) mod directory;
pub(crate) mod record;
pub(crate) mod registered;
