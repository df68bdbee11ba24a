//! The harness of the end-to-end tests: real clusters, shared by all tests of a run, and a namespace for each.
//!
//! - [`Test`] is a test and what it needs: a bed of shape `node` with Podward installed by Helm, without anybody who speaks for
//!   Services or with, or one of shape `simulated`, beside whose nodes Podward's services are processes; shared with others or alone.
//! - [`Scene`] is what it gets: a namespace of its own, eyes on its pods, and Podward running.
//! - [`Podward`] has the services that a test ends, freezes and starts, in the same words for pods and for processes.
//! - [`metrics`] is what `docs/running.md` says of metrics, and what services say.
//! - [`run`] runs tests, and ends the beds afterwards. A test that succeeds has also kept every invariant of the timeline in every
//!   version of its pods, and left nothing on them.
//!
//! With `PODWARD_KUBECONFIG` the tests of the first run on that cluster instead, which has no images of Podward's services, so that these
//! are processes; and the others are left out.
#![forbid(unsafe_code)]

mod account;
mod collector;
mod environment;
mod kubectl;
pub mod metrics;
mod podward;
mod raw;
mod scene;
mod suite;

pub use account::Account;
pub use collector::{Collected, Collector};
pub use environment::MAX_BUSY_SECONDS;
pub use kubectl::Kubectl;
pub use podward::{Podward, Service, Trust};
pub use raw::{Answer, raw_patch};
pub use scene::{CONSUMER, NAMESPACE_NAME, Scene};
pub use suite::{Test, run};
