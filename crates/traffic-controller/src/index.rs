//! An index of EndpointSlices, Services and nodes. It keeps only the fields that the answers depend on.
//!
//! Endpoints are indexed by the pod that they belong to. The cost of a question does not depend on the size of the
//! cluster.

mod address_family;
mod api_servers;
mod bypass;
mod change;
mod endpoint_index;
mod mesh;
mod node;
mod nodes;
mod object;
mod pod_endpoints;
mod references;
mod route;
mod route_kind;
mod service;
mod slice;

pub(crate) use address_family::AddressFamily;
pub(crate) use api_servers::{ApiServerLease, ApiServers};
pub(crate) use bypass::NamespaceObject;
pub(crate) use change::{ChangeOrigin, EndpointChange};
pub(crate) use endpoint_index::{EndpointIndex, MAX_PORTS, RETENTION};
pub(crate) use node::{IndexedNode, NodeObject};
pub(crate) use object::{ObjectKey, WatchedObject};
pub(crate) use pod_endpoints::{LocalEndpoints, OtherEndpoints, PodEndpoints, ServiceMembership, TargetPod};
pub(crate) use route::{GrpcRoute, HttpRoute, Ingress, RouteObject, TargetGroupBinding};
pub(crate) use route_kind::RouteKind;
pub(crate) use service::{LocalPolicy, ServiceKind, ServiceObject};
pub(crate) use slice::{DataPath, EndpointOwner, SliceObject};

#[cfg(test)]
mod tests;
