//! The node-agent tells the traffic-controller which connections a pod on its node still has, and what the node's
//! kube-proxy reports.
//!
//! ```text
//!  traffic-controller ──► gRPC NodeAgent.AwaitQuiet ──► handler ──► pod_sockets ──► /proc/<pid>/cgroup of the pod
//!                                                          │             └────────► sock_diag in its network namespace
//!                                                          └──► connections (pure)
//! ```
//!
//! # Guarantees
//! - A response describes a moment after the request arrived.
//! - A pod without a process on this node, a pod with the network of the node, or an error of the kernel is an error of
//!   the call, never "no connection".
//! - Sockets are read only while the traffic-controller waits for a pod, at most 20 times a second for each pod.
#![forbid(unsafe_code)]

mod args;
mod connections;
mod handler;
mod kube_proxy;
mod pod_sockets;
mod pod_uid;
mod rested;
mod serve;
mod sock_diag;

pub use args::Args;
pub use serve::run;
