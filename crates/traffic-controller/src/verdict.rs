//! Computes the answers to questions. The functions are pure: they use neither a clock nor I/O.

mod complete;
mod data_path_changes;
mod in_flight;
mod interrupted_watch;
mod node_proxies;
mod pre_check;
mod prepare;
mod prepare_progress;
mod propagation;
mod release;
mod slices;
mod text;
mod traffic_verdict;
mod wait_times;

pub(crate) use complete::complete;
pub(crate) use in_flight::{InFlightCount, OpenConnections, connections_count_from};
pub(crate) use node_proxies::{NodeProxies, NodeProxy};
pub(crate) use pre_check::{RemainingEndpoints, pre_check};
pub(crate) use prepare::prepare;
pub(crate) use prepare_progress::PrepareProgress;
pub(crate) use release::release;
pub(crate) use traffic_verdict::TrafficVerdict;
pub(crate) use wait_times::WaitTimes;

#[cfg(test)]
mod tests;
