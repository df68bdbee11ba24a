//! The engine of Podward: PodOpsLifecycle as pure functions over the labels, finalizers and conditions of a pod.
//!
//! An operator announces an operation on a pod by labels; the pod is taken out of service; when its gate is off and no consumer
//! holds it any more, the operator gets its permission (`operate/<id>`), works and finishes; the result is checked, and the pod
//! is put back. This crate decides every one of those steps. It has no client, no runtime, no clock and no I/O, so that the
//! webhooks, the controller, the command line and tests all decide alike.
//!
//! # How the parts relate
//!
//! ```text
//!  a pod's JSON                    its labels                          what they mean
//!   Pod  ──── view() ────▶ PodView ───── Operations::parse ────▶ Operations ─── Phase::of
//!                             │                                       │
//!       ┌─────────────────────┴──────────┬──────────────────┬─────────┴────────┐
//!       ▼                                ▼                  ▼                  ▼
//!  advance(old, new, now)        plan(pod, checks)          desired_gate       explain(pod, checks)
//!  steps that the state allows   plan_labels: advance, and  gate_to_write      the condition
//!       │                        what is the controller's   available          podward.io/lifecycle
//!       │                                │                  may_operate
//!       └──────────▶ LabelChanges ◀──────┘
//!                         │ JSON patch, merge patch
//!  mutating webhook: on_create, on_update (patches), review_raw     validating webhook: review
//! ```
//!
//! [`advance`] is what both the mutating webhook and the controller apply: the webhook within the caller's own write, the controller
//! level-triggered on what it sees. So the webhook is a fast path, and nothing is lost without it. What only the controller does is
//! in [`plan_labels`] (permissions and results, by [`Checks`]; `service-available`) and [`gate_to_write`]; [`plan`] puts them into one
//! write. [`review`] judges a write with the help of [`advance`], so that the two webhooks can't disagree.
//!
//! # Guarantees
//!
//! Checked by property tests over random interleavings of operators, kubelet, traffic loop, controller and webhooks that come and go:
//!
//! - Total and deterministic: no labels, no annotation and no condition make a function fail or panic, nor does chance decide.
//! - Idempotent, and at rest in a bounded number of steps: what is already so is never written again.
//! - `operate/<id>` is given only while the gate is off and no `prot.` finalizer is on the pod.
//! - The gate never turns True while an operation has `preparing` or `operate`.
//! - `service-available` is given only with the gate on, the pod Ready and every expected finalizer there.
//! - A result that is refused, so that its operator was told to roll back, is not accepted: the operation is begun anew, cancelled, or
//!   nobody refuses any more ([`refusals`]).
//! - Nothing of an operation is left when it has finished or was undone; labels of others are never touched.
//! - Every change that the engine makes passes [`review`].
//!
//! # Example
//!
//! An operator begins. What the mutating webhook adds to its write, and what the controller writes then:
//!
//! ```
//! use std::collections::BTreeMap;
//! use podward_core::keys::{self, Stage};
//! use podward_core::{ConditionStatus, Facts, NoRules, Operations, PodView, UnixNanos, advance, gate_to_write, plan_labels};
//!
//! let now = UnixNanos(1_700_000_000_000_000_000);
//! let mut labels = BTreeMap::from([
//!     (keys::CONTROL_LABEL.to_owned(), "true".to_owned()),
//!     (keys::SERVICE_AVAILABLE.to_owned(), "1600000000000000000".to_owned()),
//!     (Stage::Operating.key("upgrade"), "1700000000000000000".to_owned()),
//!     (Stage::OperationType.key("upgrade"), "update".to_owned()),
//! ]);
//! fn in_service(labels: &BTreeMap<String, String>) -> PodView<'_> {
//!     let gate = Some(ConditionStatus::True);
//!     let facts = Facts::default();
//!     PodView { labels, available_conditions: None, finalizers: &[], has_gate: true, gate, ready: true, terminating: false, facts }
//! }
//!
//! advance(None, &in_service(&labels), now).apply(&mut labels);
//! assert!(labels.contains_key(&Stage::PreCheck.key("upgrade")));
//!
//! plan_labels(&in_service(&labels), &NoRules, now).apply(&mut labels);
//! assert!(labels.contains_key(&keys::permission_key("update")));
//! assert!(labels.contains_key(&Stage::Preparing.key("upgrade")));
//! assert!(!labels.contains_key(keys::SERVICE_AVAILABLE));
//! assert_eq!(gate_to_write(&in_service(&labels), &Operations::parse(&labels)), Some(ConditionStatus::False));
//!
//! // The gate is written, and within that write the operator gets its permission.
//! let out_of_service = PodView { gate: Some(ConditionStatus::False), ..in_service(&labels) };
//! let changes = advance(None, &out_of_service, now);
//! assert!(changes.set.contains_key(&Stage::Operate.key("upgrade")));
//! ```
#![forbid(unsafe_code)]
mod admit;
mod advance;
pub mod busy;
pub mod consumers;
pub mod deletion;
mod expected;
mod explain;
mod gate;
pub mod hold;
pub mod hooks;
pub mod keys;
mod operations;
mod patch;
mod phase;
mod plan;
mod pod;
pub mod refusals;
pub mod release;
pub mod rules;
mod time;
pub mod trace;
mod view;
pub mod wish;
pub use admit::{Review, ReviewPolicy, Writer, on_create, on_update, review, review_raw};
pub use advance::advance;
pub use consumers::{Consumers, FinalizerChanges, HookEvent, Note, OpenQuestion};
pub use expected::{
    ExpectedFinalizers, InvalidAvailableConditions, service_of, with_consumers, without_employers,
};
pub use explain::{Explanation, explain};
pub use gate::{available, desired_gate, gate_to_write, may_operate};
pub use operations::{Operation, Operations, UNKNOWN_TYPE};
pub use patch::LabelChanges;
pub use phase::Phase;
pub use plan::{CheckResult, Checks, NoRules, Plan, plan, plan_labels};
pub use pod::Pod;
pub use refusals::{Objection, PostCheckRejection, Refused};
pub use time::UnixNanos;
pub use view::{ConditionStatus, Facts, PodView};
