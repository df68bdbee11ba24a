//! The harness of the end-to-end tests: real clusters that all tests of a run share, and a namespace for each test.
//!
//! - [`Test`] is a test and the environment that it needs: a test cluster of shape `node` with Podward installed with
//!   Helm, with or without the traffic-controller, or a test cluster of shape `simulated` with Podward's services as
//!   processes. A test shares the cluster with others or has it alone.
//! - [`Fixture`] is what a test works with: a namespace of its own, a watch on its pods, and Podward.
//! - [`Podward`] stops, freezes and starts services, with the same methods for pods and for processes.
//! - [`metrics`] compares `docs/reference/metrics.md` with the metrics that services expose.
//! - [`rights`] compares the rights of Podward's accounts with those that they use.
//! - [`run`] runs the tests and then ends the test clusters. After each test it checks all invariants on every
//!   version of the test's pods, and that no label of an operation is left.
//!
//! With `PODWARD_KUBECONFIG` the tests without the traffic-controller run on that cluster. It does not have the
//! images of Podward's services, so these run as processes. The other tests are ignored.
#![forbid(unsafe_code)]

mod account;
mod collector;
mod environment;
mod fixture;
mod forged_review;
mod kubectl;
pub mod metrics;
mod podward;
mod raw;
pub mod rights;
mod suite;
mod why;

pub use account::HookAuthor;
pub use collector::Collector;
pub use environment::MAX_BUSY_SECONDS;
pub use fixture::{CONSUMER, Fixture, NAMESPACE_NAME};
pub use forged_review::{ReachableWebhook, forged_delete, forged_eviction};
pub use kubectl::Kubectl;
pub use podward::{Podward, ServiceInstance, Trust};
pub use podward_support::Collected;
pub use raw::{RawResponse, raw_patch, raw_status_patch};
pub use suite::{Test, run};
