//! Kubernetes code that the services share: the cached pod, the work queue, events, watches and the owners of pods.
//!
//! ```text
//!  watch of pods ──► CachedPod (only what podward-core reads) ──► view() ──► podward-core
//!  watch of other objects ──► watched::Watched ──► small map of what is read of each object
//!  WorkQueue ──► objects to reconcile again        Events ──► events.k8s.io
//! ```
//!
//! # Guarantees
//! - A [`CachedPod`] is never written back. Writes are patches with a precondition.
//! - A failed watch is never taken for an empty list: see [`watched::Watched::is_current`].
//! - Memory is bounded: a queue holds each item once, and the queue of events drops and counts what exceeds its size.
#![forbid(unsafe_code)]

mod api_error;
pub mod api_server;
mod bounded_names;
mod busy;
mod cached_pod;
mod clock;
mod events;
mod first_list;
pub mod nodes;
pub mod owners;
mod pod_key;
mod watch_metrics;
pub mod watched;
pub mod work_queue;

pub use api_error::{ApiError, pod_call};
pub use bounded_names::BoundedNames;
pub use busy::{deletion_cost_changes, holds_deletion};
pub use cached_pod::{CachedPod, CachedPort, LifecycleCondition};
pub use clock::{now, unix_nanos};
pub use events::{EventDraft, EventMetrics, Events};
pub use first_list::stopped_before_first_list;
pub use pod_key::PodKey;
pub use work_queue::WorkQueue;
