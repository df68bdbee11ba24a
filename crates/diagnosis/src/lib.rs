//! Why a pod is not where it should be: pure functions from objects of the Kubernetes API to causes.
//!
//! [`pod::diagnose`] takes a [`Snapshot`] and returns the [`Cause`]s of one pod, the most probable one first, from
//! Pending to Terminating. [`creation::refused`] reads why a workload cannot create pods. This crate has no client,
//! clock or I/O: the command line collects the objects.
//!
//! The texts of the kubelet, the scheduler and the admission plugins are parsed where the API has no field. A text that
//! is not known is shown as it is.
#![forbid(unsafe_code)]

mod cause;
mod command;
mod events;
mod pod_view;
mod quantity;
mod snapshot;
mod words;

pub mod creation;
pub mod opt_in;
pub mod pod;
pub mod rollout;
pub mod traffic;
pub mod webhooks;

pub use cause::{Case, Cause};
pub use command::owner;
pub use events::PodEvents;
pub use snapshot::Snapshot;
pub use words::{age, safe_text};
