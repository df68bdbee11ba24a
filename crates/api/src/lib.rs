//! The custom resources of Podward, `podward.io/v1alpha1`. Their schemas are derived from these types: `cargo xtask crds` writes
//! `deploy/crds`.
#![forbid(unsafe_code)]

mod lifecycle_hook;

pub use lifecycle_hook::{
    Attachment, DeadlinePolicy, Endpoint, FailurePolicy, GateTiming, HookStatus, InvalidHook, LifecycleHook,
    LifecycleHookSpec, Phase,
};
