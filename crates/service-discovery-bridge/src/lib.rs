//! The service-discovery-bridge registers pods in service registries outside Kubernetes, takes them out of service before an
//! operation, and deregisters them before they are deleted.
//!
//! ```text
//!  watches of pods, DiscoveryBindings, ClusterRegistries ──► index ─┐
//!                                                                   ├──► keeper: one task for each binding
//!  members: one Lease for each replica ──► which bindings are ours ─┘      │            ▲
//!                                                                          ▼            │
//!      gRPC HookRegistry.Register, Attach ◄──── hook ◄── questions, answers ── calls    │
//!                                                                          │            │
//!      registry (crates/registries) ◄──────────── sync: settle, listing ◄──┴── model ───┘
//! ```
//!
//! Each binding is a hook of its own, which attaches to the lifecycle-controller: the process accepts no connections but
//! those to its admin port. The replica that is responsible for a binding attaches as its hook, writes its instances, and
//! compares them. `model` decides; it has no client, clock or I/O.
//!
//! # Guarantees
//! - The evidence is PROVEN only if every address of the registry shows the change, and no client may use an older state.
//! - An instance without the mark of its binding is never changed in the mode Own, and never removed in any.
//! - An API error, an empty cache or an address that does not answer never counts as absence: nothing is removed because
//!   of it.
//! - No more than a share of a service's instances is removed within a minute without a reason on record.
//! - Everything that must survive is stored in pods, in the registry and in the status of the binding.
#![forbid(unsafe_code)]

mod args;
mod dialer;
mod index;
mod keeper;
mod members;
mod metrics;
mod model;
mod serve;
mod sync;
mod watches;

pub use args::Args;
pub use serve::run;
