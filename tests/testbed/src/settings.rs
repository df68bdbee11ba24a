//! The settings of a cluster that its components depend on.

use podward_images::Image;

use crate::{proxy_mode::ProxyMode, shape::Shape};

/// The settings of a cluster.
#[derive(Clone)]
pub(crate) struct ClusterSettings {
    pub(crate) shape: Shape,
    pub(crate) images: Vec<Image>,
    pub(crate) audit_log: bool,
    pub(crate) simulated_nodes: usize,
    pub(crate) dns: bool,
    pub(crate) proxy_mode: ProxyMode,
}
