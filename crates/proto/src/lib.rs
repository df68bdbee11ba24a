//! Clients, servers and messages of Podward's gRPC interface, generated from `proto/podward/v1`.
#![forbid(unsafe_code)]

/// The package `podward.v1`: hooks and operations.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    tonic::include_proto!("podward.v1");
}

/// The encoded descriptors of all proto files, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("podward.v1");
