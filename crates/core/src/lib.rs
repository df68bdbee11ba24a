//! The decisions of Podward: PodOpsLifecycle as pure functions of the labels, finalizers and conditions of a pod.
//!
//! An operator announces an operation on a pod with labels. Podward takes the pod out of service. When the gate is off
//! and no consumer uses the pod, the operator gets its permission (`operate/<id>`), works and finishes. Podward checks
//! the result and puts the pod back into service. This crate decides every one of these steps. It has no client,
//! runtime, clock or I/O, so that webhooks, controllers, the command line and tests decide alike.
//!
//! # How the parts relate
//!
//! ```text
//!  a pod's JSON                    its labels                          what they mean
//!   Pod  ──── view() ────▶ PodView ───── Operations::parse ────▶ Operations ─── OperationPhase::of
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
//! The mutating webhook and the controller both call [`advance`]: the webhook within the caller's write, the controller
//! on every observed pod. The webhook is a fast path, and nothing is lost without it. Only the controller calls
//! [`plan_labels`] (permissions and results, decided by [`Checks`], and `service-available` where no consumer's write
//! sets it) and [`gate_to_write`]; [`plan`] merges them into one write. [`review`] uses [`advance`] to check a write, so
//! that the two webhooks cannot disagree.
//!
//! # Guarantees
//!
//! Property tests check them with random interleavings of operators, kubelet, consumers, controller and webhooks that
//! start and stop:
//!
//! - Deterministic: no label, annotation or condition makes a function fail or panic.
//! - Idempotent, with a bounded number of steps: nothing is written that is already stored.
//! - `operate/<id>` is set only while the gate is off and the pod has no `prot.` finalizer.
//! - The gate never turns True while an operation has `preparing` or `operate`.
//! - `service-available` is set only with the gate on, the pod Ready and every expected finalizer present.
//! - A refused result is not accepted until the operation is begun again or cancelled, or no check refuses the result
//!   ([`refusals`]).
//! - Nothing of an operation is left when it has finished or was undone, also not `preparing-to-delete`. Other labels
//!   never change.
//! - Every change of this crate passes [`review`].
//!
//! # Example
//!
//! An operator begins an operation. The example shows the additions of the mutating webhook and the writes of the
//! controller:
//!
//! ```
//! use std::collections::BTreeMap;
//! use podward_core::keys::{self, Stage};
//! use podward_core::{ConditionStatus, PodFacts, NoRules, Operations, PodView, UnixNanos, advance, gate_to_write, plan_labels};
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
//!     let facts = PodFacts::default();
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
mod model;

mod protocol;

pub mod hooks;

pub mod rules;

pub mod busy;

pub mod deletion;

mod explain;

mod review;

pub mod release;

pub mod history;

pub mod trace;

pub mod webhook_path;

pub mod cloneset;

pub use explain::{Explanation, deadline_of_message, explain};
pub use hooks::{FinalizerChanges, HookEvent, HookReport, OpenHookQuestion, PodHooks, PodPlan, plan};
pub use model::expected_finalizers::{
    ExpectedFinalizers, InvalidAvailableConditions, is_object_name, service_of, with_consumers,
    without_consumers,
};
pub use model::keys;
pub use model::label_changes::LabelChanges;
pub use model::operations::{Operation, Operations, UNKNOWN_TYPE};
pub use model::phase::OperationPhase;
pub use model::pod::Pod;
pub use model::time::UnixNanos;
pub use model::view::{ConditionStatus, PodFacts, PodView};
pub use protocol::advance::{advance, with_next_steps};
pub use protocol::checks::{CheckResult, Checks, NoRules};
pub use protocol::gate::{available, desired_gate, gate_to_write, may_operate};
pub use protocol::objection::{Objection, PostCheckRejection};
pub use protocol::plan_labels::plan_labels;
pub use protocol::refusals::{self, RefusedResult};
pub use review::{
    Review, ReviewPolicy, Writer, drops_deletion_request, on_create, on_update, review, review_raw,
    untrusted_permissions, without_managed_fields,
};
