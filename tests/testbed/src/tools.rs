//! The programs that a cluster runs. They are built once and kept in a cache folder.
//!
//! No prebuilt program is downloaded from a vendor. Kubernetes, etcd, CoreDNS, kwok and Helm are compiled from the Go
//! modules in `pins/`. containerd, runc, the CNI plugins, busybox, nft and iptables are packages of the distribution,
//! unpacked but not installed. The name of the folder is a digest of all pins except those of CoreDNS, whose digest
//! is in its file name. So a different pin means a different folder or file, and a folder's content never changes its
//! meaning.

mod cache;
mod command;
mod debian;
mod ensure;
mod error;
mod golang;
mod kubernetes;
mod lock;
mod maven;
mod part;
mod pins;
mod preflight;
mod progress;
mod requirement;
mod rust;
mod system;

pub use cache::Tools;
pub use error::ToolsError;
pub use part::Part;
pub use preflight::preflight;
pub use progress::{Progress, Step};
pub use requirement::MissingRequirement;

#[cfg(test)]
mod tests;
