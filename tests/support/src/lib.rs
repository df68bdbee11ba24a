//! What the demo, the end-to-end tests and the benchmarks share: the parties around Podward, and the eyes on them.
//!
//! - [`PodFeed`] is one watch on the pods of a namespace: the latest version of each, and waits on conditions.
//! - [`Operator`] works on pods by the label protocol, as operators that know nothing of Podward do.
//! - [`TrafficLoop`] sends pods traffic and holds them by a finalizer, after the plain recipe for traffic controllers.
//! - [`Timeline`] records every version of every pod and holds the protocol's invariants against all of them.
//! - [`Cluster`] is where it all runs: a bed of `podward-testbed`, or a cluster that the user has.
//! - [`Podward`] runs Podward's services on a cluster, each with the rights of its own service account.
//! - [`Installation`] is Podward on a bed as users have it: by Helm, from images; [`Replicas`] are its pods, which tests end and start.
//! - [`rendered`] is what the Helm chart renders, as files.
//! - [`PythonExamples`] runs the examples in Python, in an environment of their own.
//! - [`Load`] is a crowd of clients of a Service, which counts what it loses.
//! - [`api_answers`] are what stand-ins for an API server say.
//! - [`demo::run`] puts them together.
//!
//! Nothing here uses Podward's client code: what is shared with it are the names of `podward_core::keys`.
#![forbid(unsafe_code)]

pub mod api_answers;
mod ask;
mod cluster;
pub mod demo;
mod feed;
mod images;
mod installation;
mod load;
mod memory;
mod operator;
pub mod pods;
mod podward;
mod private_file;
mod python;
pub mod rendered;
pub mod timeline;
mod traffic_loop;
mod wait;

pub use cluster::{Cluster, Exposed, ServiceCommand, ServiceProcess};
pub use feed::{PodFeed, Seen, Watching, observe};
pub use images::{DemoImages, ServiceImages, WorkerImage};
pub use installation::{Installation, Replica, Replicas};
pub use load::{Load, LoadOptions};
pub use operator::{FinishStyle, Operator};
pub use podward::{Kind, Options, Podward, Service};
pub(crate) use private_file::private_file;
pub use python::PythonExamples;
pub use timeline::Timeline;
pub use traffic_loop::{Behaviour, Pace, TrafficLoop};
pub use wait::{WAIT, within};
