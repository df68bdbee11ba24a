//! Shared code of the demo, the end-to-end tests and the benchmarks: operators, consumers and clients around Podward,
//! and the observation of pods.
//!
//! - [`PodFeed`] watches the pods of a namespace, keeps the latest version of each, and waits for conditions.
//! - [`Operator`] works on pods by the label protocol, without knowledge of Podward.
//! - [`TrafficLoop`] is a consumer that holds pods with a finalizer, by the documented recipe for traffic
//!   controllers.
//! - [`Timeline`] records every version of every pod and checks the protocol's invariants on all of them.
//! - [`Cluster`] is the cluster that everything runs on: a test cluster of `podward-testbed`, or an existing cluster.
//! - [`Podward`] runs Podward's services as processes, each with the rights of its own service account.
//! - [`Installation`] is Podward on a test cluster, installed with Helm from images; [`Replicas`] stops and starts
//!   its pods.
//! - [`rendered`] returns the output of the Helm chart as files.
//! - [`PythonExamples`] runs the Python examples in an environment of their own.
//! - [`LoadClient`] sends requests to a Service, or to the instances that a registry shows, and counts the lost ones.
//! - [`ReachableServer`] makes a server of this process's network reachable in the cluster.
//! - [`ask`] sends a request to a service.
//! - [`api_answers`] are responses for tests that replace the API server.
//! - [`metrics_text`] returns the metrics of a registry.
//! - [`demo::run`] runs the demo, and [`demo::registry::run`] that with registries.
//!
//! Nothing here uses Podward's client code, except that clients of registries are those of `podward_registries`. Only the
//! names in `podward_core::keys` are shared with it.
#![forbid(unsafe_code)]

pub mod api_answers;
pub mod ask;
mod cluster;
pub mod demo;
mod feed;
mod installation;
mod late_webhook;
mod load;
pub mod markers;
mod memory;
mod metrics;
mod operator;
pub mod pods;
mod podward;
mod private_file;
mod python;
mod reachable;
pub mod rendered;
mod rollout;
mod spans;
pub mod timeline;
mod traffic_loop;
mod wait;
mod watched;

pub use cluster::{Cluster, ClusterStream, ExposedServer, ServiceCommand, ServiceProcess};
pub use feed::{PodFeed, PodFeedEvent, WatchTask, observe};
pub use installation::{Installation, PodSecurity, Replica, Replicas};
pub use late_webhook::despite_late_webhook;
pub use load::{LoadClient, LoadClientOptions, LoadTargets};
pub use metrics::metrics_text;
pub use operator::{FinishStyle, Operator};
pub use podward::{Podward, PodwardOptions, PodwardService, ServiceKind, webhook_path_state, webhook_paths};
pub(crate) use private_file::private_file;
pub use python::PythonExamples;
pub use reachable::ReachableServer;
pub use rollout::{is_rolled_out, restart_patch};
pub use spans::{Collected, SpanStore, collect_spans};
pub use timeline::Timeline;
pub use traffic_loop::{TrafficBehaviour, TrafficLoop, TrafficPace};
pub use wait::{WAIT, eventually, within};
pub use watched::await_condition;
