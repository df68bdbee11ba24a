//! The harness of the end-to-end tests: real clusters, shared by all tests of a run, and a namespace for each.
//!
//! - [`Test`] is a test and what it needs: a bed of shape `node`, without anybody who speaks for Services or with, or one of shape
//!   `simulated`; shared with others or alone.
//! - [`Scene`] is what it gets: a namespace of its own, eyes on its pods, and Podward running.
//! - [`metrics`] is what `docs/running.md` says of metrics, and what services say.
//! - [`run`] runs tests, and ends the beds afterwards. A test that succeeds has also kept every invariant of the timeline in every
//!   version of its pods, and left nothing on them.
//!
//! With `PODWARD_KUBECONFIG` the tests of the first run on that cluster instead, and the others are left out.
#![forbid(unsafe_code)]

mod account;
mod collector;
mod environment;
mod kubectl;
pub mod metrics;
mod raw;
mod scene;
mod suite;

pub use account::Account;
pub use collector::{Collected, Collector};
pub use kubectl::Kubectl;
pub use raw::{Answer, raw_patch};
pub use scene::{CONSUMER, NAMESPACE_NAME, Scene};
pub use suite::{Test, run};
