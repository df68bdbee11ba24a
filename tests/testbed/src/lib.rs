//! A real Kubernetes cluster for tests, the demo and benchmarks. It starts in seconds and ends with the process that
//! started it.
//!
//! ```no_run
//! # async fn test() -> Result<(), podward_testbed::TestClusterError> {
//! use podward_testbed::{TestCluster, Command, Shape};
//! let cluster = TestCluster::builder(Shape::ControlPlane).name("example").start().await?;
//! let webhook = cluster.spawn(Command::new("webhook", "target/debug/webhook").arg("--port=9443")).await?;
//! let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::all(cluster.client());
//! webhook.stop().await?;
//! cluster.down().await
//! # }
//! ```
//!
//! The processes:
//!
//! ```text
//! owner (a test) ──pipe──► supervisor ──pipe──► init, PID 1 of the cluster's namespaces
//!    │                       │ relays 127.0.0.1:PORT      │ starts and reaps etcd, kube-apiserver, ...
//!    └── control.sock ───────┴────────────────────────────┘ and connects inside
//! ```
//!
//! Each real node after the first has namespaces of its own for network, mounts and host name, with an init of its own
//! that serves `control-NODE.sock`.
//!
//! - [`Tools`] finds or builds the programs; [`TestClusterBuilder`] describes a cluster.
//! - The owner, the supervisor and init each hold the only write end of the next one's standard input. So each sees
//!   the end of the one before it, even after SIGKILL. When init ends, the kernel ends everything inside, with its
//!   mounts and devices. The supervisor then removes cgroups and files. The next start of a cluster removes what a
//!   killed supervisor left.
//! - The host is not changed: addresses, mounts and sysctls belong to the cluster. Any number of clusters can run
//!   side by side.
//! - Only the shape [`Shape::Node`] needs root. The other shapes run in a user namespace.
//! - Logs are kept if the start fails or the owner panics. Errors name the component, its log and the end of the log.

mod builder;
mod cgroup;
mod client;
mod components;
mod containers;
mod control;
mod error;
mod exit;
mod init;
mod kubeconfig;
mod launch;
mod node_number;
mod on_panic;
mod pki;
mod probe;
mod process;
mod protocol;
mod proxy_mode;
mod second_api;
mod second_server;
mod settings;
mod shape;
mod start;
mod state;
mod supervise;
mod supervisor;
mod taint;
mod test_cluster;
mod test_node;
mod tools;

pub use builder::TestClusterBuilder;
pub use error::TestClusterError;
pub use exit::Exit;
pub use pki::CertificatePem;
pub use process::{Command, Process};
pub use proxy_mode::ProxyMode;
pub use shape::Shape;
pub use supervise::supervise;
pub use taint::Taint;
pub use test_cluster::{ExposedPort, TestCluster, TestClusterInfo, TestClusterStream};
pub use test_node::TestNode;
pub use tools::{MissingRequirement, Part, Progress, Step, Tools, ToolsError, preflight};

/// Returns an error and its causes in one line.
pub(crate) fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
