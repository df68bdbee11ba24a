//! What a binding decides. Nothing here has a client, a clock or I/O.
//!
//! ```text
//!  BoundPod ──► presence ─┐
//!  Binding  ──► desired  ─┼──► decide ◄── what an address of the registry shows
//!                         │
//!                         └──► orphans ──► RemovalLimit
//! ```

mod binding;
mod binding_events;
mod bound_pod;
mod conditions;
mod decision;
mod evidence;
mod kruise;
mod kruise_objects;
mod lost_node;
mod members;
mod orphans;
mod presence;
mod removal_limit;
mod slots;

#[cfg(test)]
pub(crate) use binding::tests;
pub(crate) use binding::{Binding, BindingKey, Desired};
pub(crate) use binding_events::{BindingEvent, BindingEvents, BindingFacts};
pub(crate) use bound_pod::{BoundPod, Demand, PodObject};
pub(crate) use decision::{Decision, decide, decide_all};
pub(crate) use evidence::{CacheWaits, ShownAt, ShownPod, StaleList, Verdict, verdict};
pub(crate) use kruise::{KruiseWorkload, Lifecycle};
pub(crate) use kruise_objects::{AdvancedStatefulSetObject, CloneSetObject};
pub(crate) use members::keeper_of;
pub(crate) use orphans::{Orphan, OrphanState, Suspect, Whose, found_again, marked_uid};
pub(crate) use presence::{Presence, presence};
pub(crate) use removal_limit::RemovalLimit;
pub(crate) use slots::{EXPIRY, Slot, SlotStep, SlotTable};
