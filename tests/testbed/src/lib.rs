//! A real Kubernetes for tests, the demo and benchmarks: started in seconds, gone with the process that started it.
//!
//! ```no_run
//! # async fn test() -> Result<(), podward_testbed::BedError> {
//! use podward_testbed::{Bed, Command, Shape};
//! let bed = Bed::builder(Shape::ControlPlane).name("example").start().await?;
//! let webhook = bed.spawn(Command::new("webhook", "target/debug/webhook").arg("--port=9443")).await?;
//! let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::all(bed.client());
//! webhook.stop().await?;
//! bed.down().await
//! # }
//! ```
//!
//! Parts and how they relate:
//!
//! ```text
//! owner (a test) ──pipe──► keeper ──pipe──► init, PID 1 of the bed's namespaces
//!    │                       │ relays 127.0.0.1:PORT      │ starts and reaps etcd, kube-apiserver, ...
//!    └── control.sock ───────┴────────────────────────────┘ and connects inside
//! ```
//!
//! - [`Tools`] finds or builds the programs; [`Image`] writes images without a registry; [`BedBuilder`] describes a bed.
//! - Owner, keeper and init each hold the only write end of the next one's standard input, so the end of any of them, even by
//!   SIGKILL, is seen by the next. When init ends the kernel ends everything inside, with its mounts and devices; the keeper then
//!   removes cgroups and files. What a killed keeper left is swept when the next bed starts.
//! - Nothing of the host is changed: addresses, mounts and sysctls are the bed's own. Any number of beds run side by side.
//! - A bed needs root for the shape [`Shape::Node`] only; the others run in a user namespace.
//! - Logs are kept when a start fails or the owner panics; errors name the component, its log and the log's end.

mod bed;
mod builder;
mod cargo_build;
mod cgroup;
mod client;
mod cluster;
mod components;
mod control;
mod error;
mod image;
mod init;
mod keeper;
mod kubeconfig;
mod launch;
mod on_panic;
mod pki;
mod probe;
mod process;
mod protocol;
mod proxy_mode;
mod shape;
mod start;
mod state;
mod supervise;
mod tools;

pub use bed::{Bed, BedInfo, BedStream, Exposed};
pub use builder::BedBuilder;
pub use cargo_build::{
    BuildError, Programs, build_for_images, build_program, build_workspace, cargo, workspace_dir,
};
pub use cluster::{Cluster, ExistingCluster};
pub use error::BedError;
pub use image::{Blob, Image, ImageError, Packed};
pub use pki::CertificatePem;
pub use process::{Command, Exit, Process};
pub use proxy_mode::ProxyMode;
pub use shape::Shape;
pub use supervise::supervise;
pub use tools::{Missing, Part, Progress, Step, Tools, ToolsError, preflight};

/// An error with its causes, in one line.
pub(crate) fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
