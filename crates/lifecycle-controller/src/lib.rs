//! The lifecycle-controller: the only writer of lifecycle state.
//!
//! ```text
//!  watch of opted-in pods ─┐
//!  answers of hooks ───────┤
//!  owners, budgets, nodes ─┼──► reconcile ──► observation ──► decide (podward-core) ──► write ──► report
//!  results of rules ───────┤                      ▲                                      │
//!  watch of Services ──────┘      deciders: hooks, rules, deletions              write-through cache
//! ```
//!
//! This crate is wiring: it starts the [hooks](podward_hooks), the [rules](podward_rules), the
//! [deletions](podward_deletion) and the [gRPC services](podward_lifecycle_grpc), and reconciles each pod. All
//! decisions are made by [`podward_core`], with the same functions that the webhooks use.
//!
//! # Guarantees
//! - Level-triggered: a reconciliation depends on the stored state of the pod. A missed event, a webhook that is down
//!   or a killed leader loses nothing.
//! - A write changes something, and it fails if the pod was changed after it was read.
//! - A pod that cannot be written does not delay other pods.
#![forbid(unsafe_code)]

mod args;
mod cleanup;
mod context;
mod controller;
mod decide;
mod deciders;
mod drain_turns;
mod gone_services;
mod joint_removals;
mod leader_pods;
mod observation;
mod opted_out;
mod pod_watch;
mod reconcile;
mod report;
mod retries;
mod serve;
mod service_check;
mod service_lookup;
mod service_watch;
mod write;
mod write_through_cache;

pub use args::Args;
pub use serve::run;
