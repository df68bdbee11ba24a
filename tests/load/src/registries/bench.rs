//! What each part of the measurement uses.

use podward_support::Cluster;

use super::bridge::Bridge;
use super::options::RegistriesOptions;
use super::pods::BoundPods;

/// What each part of the measurement uses.
pub(super) struct Bench<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) bridge: &'a Bridge<'a>,
    pub(super) pods: &'a BoundPods,
    pub(super) options: &'a RegistriesOptions,
}
