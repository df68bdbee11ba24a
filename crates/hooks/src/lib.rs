//! Calls hooks about pods, and keeps their answers for the decisions in `podward-core`.
//!
//! ```text
//!  LifecycleHooks, Namespaces ──► kubernetes ──► registration: the hooks that are responsible for a pod
//!                                   │
//!                                   ├──► calls: one driver per hook ──► endpoint: gRPC to a hook server
//!                                   │      ▲   │                   └──► attachment: streams that hook systems open
//!                                   │      │   ▼
//!  reconcile ──► HookCalls ──────► questions: table, queues, circuit breakers ──► pods to reconcile
//!                                   │
//!                                   └──► kubernetes: status of the LifecycleHooks
//! ```
//!
//! Only the leader calls hooks. The state is kept in memory and may be lost at any time: questions are then asked
//! again. A hook is asked at least once and must answer idempotently.
#![forbid(unsafe_code)]

mod calls;
mod hook_calls;
mod kubernetes;
mod metrics;
mod observers;
mod questions;
mod registration;
mod shared;

#[cfg(test)]
mod tests;

pub use calls::attachment::{AttachError, Attachment};
pub use calls::credentials::HookArgs;
pub use calls::probe::HookProbe;
pub use calls::token::TokenAccount;
pub use hook_calls::{HookCalls, PodAnswers};
pub use metrics::HookMetrics;
pub use observers::HookObservers;
pub use questions::failure::{CallFailure, CallFailureKind};
pub use questions::reply::HookReply;
