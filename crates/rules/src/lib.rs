//! PodTransitionRules: which rules refuse an operation or its result, for the controller that leads.
//!
//! ```text
//!  watch of PodTransitionRules ──► state::RuleCache ◄── watch of pods (every event, including deletions)
//!                                   │   ▲
//!             Rules::checks ◄───────┘   └──── namespace worker: reads owners, consults webhooks, decides,
//!           (reconciliation)                    │              writes grants and status
//!                  ▲                            ▼
//!                  └─────────────────── pods to reconcile again: the results of their checks changed
//! ```
//!
//! The decisions are made by [`podward_core::rules`]. This crate provides their input and stores their results: `state`
//! is pure, `worker` talks to the API server, and `webhook` calls the webhooks of rules.
//!
//! # Guarantees
//! - A rule that exists when an operation requests a check is applied. Before the operation passes, the
//!   PodTransitionRules of the namespace are listed with a request that begins after the pod's check request was seen,
//!   and all of them must be in the cache (`worker::read_barrier`). A watch that has not begun or has failed never
//!   counts as "no rules".
//! - A PodTransitionRule that is being deleted does not apply, and can be deleted although kuperator has put its finalizer
//!   on it (`worker::rule_release`).
//! - A pod in service passes only with a grant that the API server has stored (`worker::namespace_worker`).
//! - Before a controller decides with grants that another controller wrote, it reads the pods (`worker::pod_catch_up`).
//! - The status of a PodTransitionRule is written at most once a second, only when it changes, and stays below 256 KiB.
//! - The state of a namespace is dropped when its last PodTransitionRule is gone.
//! - Nothing polls: decisions follow events, and failed requests are retried with growing delays. The exception are
//!   decisions that depend on missing replicas: they are made again after 30 s, because pods that are not opted in are
//!   not watched, nor are owners beyond 200.
#![forbid(unsafe_code)]

mod context;
mod metrics;
mod observers;
mod rules;
mod state;
#[cfg(test)]
mod tests;
mod webhook;
mod worker;

pub use metrics::RuleMetrics;
pub use observers::RuleObservers;
pub use rules::Rules;
pub use state::PodRules;
pub use webhook::{AnswerProblem, PollAnswer, PostAnswer};
