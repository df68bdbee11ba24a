//! The lifecycle-controller: the one writer of lifecycle state.
//!
//! ```text
//!  watch of opted-in pods ──► reconcile ──► podward-core: plan, explain
//!  watch of Services ───────►     │  ▲
//!  answers of hooks ────────►     │  └──── consults: hooks, answers
//!                                 ├──► write: one patch for labels, finalizers, gate and condition
//!                                 ├──► consults: the questions that are open now
//!  PodTransitionRules ────►     ├──► rules: what they say; what else is said
//!                                 ├──► tracker, story, notes ──► events, metrics
//!                                 └──► latest: what was just written, until the watch has it
//! ```
//!
//! All decisions are the core's, the same as the mutating webhook's; this crate carries them out.
//!
//! # Guarantees
//! - Level-triggered: whatever was missed (events, webhooks, an earlier leader's work) is made up for from the pod's state alone.
//! - Nothing is written that already is so, and every write is refused if the pod has changed since it was decided on.
//! - A pod that can't be written holds up no other.
#![forbid(unsafe_code)]

mod args;
mod busy;
mod cached_pod;
mod callbacks;
mod certificates;
mod controller;
mod deletion;
mod error;
mod events;
mod grpc;
mod inbox;
mod join;
mod latest;
mod metrics;
mod notes;
mod reconcile;
mod rules;
mod serve;
mod services;
mod story;
mod telling;
mod traces;
mod tracker;
mod waits;
mod write;

pub use args::Args;
pub use serve::run;
