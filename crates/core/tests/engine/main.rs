//! The engine's tests: the reference's tables row by row, its known faults, and the safety properties over random
//! interleavings.
// The helpers of tests are tests, too.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod budgets;
mod busy;
mod clients;
mod controller;
mod deletion_requests;
mod endings;
mod eviction_targets;
mod explanations;
mod faults;
mod holding;
mod hook_interleavings;
mod hook_model;
mod hook_tables;
mod interleavings;
mod joined_requests;
mod malformed_annotations;
mod many_labels;
mod model;
mod patches;
mod refusals;
mod releasing;
mod repeats;
mod reviews;
mod rule_index;
mod rule_interleavings;
mod rule_model;
mod rule_reports;
mod rule_tables;
mod rules;
mod safety;
mod scale_in;
mod simulation;
mod tables;
mod webhook_path;
mod words;
