//! The gRPC interfaces of Podward, generated from `proto/podward/v1`: clients, servers and messages.
#![forbid(unsafe_code)]

/// `podward.v1`: hooks and operations.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    tonic::include_proto!("podward.v1");
}

/// The descriptors of all files, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("podward.v1");
