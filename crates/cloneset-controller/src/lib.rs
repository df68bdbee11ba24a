//! The cloneset-controller: the CloneSet workload, compatible with OpenKruise.
//!
//! ```text
//!  watch of CloneSets ─────────────────┐
//!  watches of pods, revisions, claims ─┼──► reconcile ──► observe ──► plan (podward-core) ──► execute ──► status
//!                                      │                     ▲                                   │
//!                                      └── caches ───────────┴────────── own writes ─────────────┘
//! ```
//!
//! All decisions about pods are made by [`podward_core::cloneset::plan`].
//!
//! # Guarantees
//! - Level-triggered: a reconciliation depends on what is stored. A missed event or a killed leader loses nothing.
//! - A write changes something, and it fails if the pod was changed after it was read.
//! - A set that cannot be reconciled does not delay other sets.
//! - While OpenKruise is installed, nothing is written, unless the mode says so.
#![forbid(unsafe_code)]

mod adopt;
mod args;
mod cache;
mod claims;
mod context;
mod controller;
mod delete;
mod errors;
mod execute;
mod failed_steps;
mod foreign_names;
mod metrics;
mod observe;
mod openkruise;
mod overdue;
mod own_deletions;
mod own_requests;
mod owned;
mod pod;
mod podlist;
mod progressing;
mod put_back;
mod reconcile;
mod report;
mod revisions;
mod serve;
mod slim;
mod spans;
mod status;
mod template;
#[cfg(test)]
mod test_api;
mod watches;

pub use args::Args;
pub use serve::run;
