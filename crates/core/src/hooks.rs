//! Hooks: external systems that are asked before anything happens to a pod, and hold the pod with a finalizer while
//! they use it.
//!
//! A hook with [`HookPhase::Prepare`] or [`HookPhase::Complete`] is a *consumer* of every pod that it matches. Its
//! finalizer ([`hook_finalizer`]) is on the pod exactly while it uses the pod.

mod annotation;
mod consumers;
mod evidence;
mod evidence_record;
mod hook;
mod plan;
mod pod_hooks;
mod question;
mod report;
mod selector;
mod set;

pub use crate::model::hook_keys::{
    consumer_key_of, has_hook_finalizer, hook_audience, hook_finalizer, hook_of_consumer_key,
    is_hook_finalizer,
};
pub use consumers::plan;
pub use evidence::{Evidence, EvidenceLevel};
pub(crate) use evidence_record::EvidenceRecord;
pub use hook::{DeadlinePolicy, FailurePolicy, GateTiming, Hook, HookPhase};
pub use plan::{FinalizerChanges, OpenHookQuestion, PodPlan};
pub use pod_hooks::PodHooks;
pub use question::{HookAnswer, HookAnswers, HookQuestion, NoHookAnswers};
pub use report::{HookEvent, HookReport};
pub use selector::{Anchor, InvalidSelector, Selector};
pub use set::HookSet;
