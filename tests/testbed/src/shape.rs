//! The shapes of clusters.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::tools::Part;

/// The parts of Kubernetes that a test cluster runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// etcd, kube-apiserver, kube-controller-manager and kube-scheduler. Pods stay Pending.
    ControlPlane,
    /// The control plane and simulated nodes (kwok). Pods have a status but no processes, so there can be thousands.
    Simulated,
    /// The control plane and one to three real nodes, each with containerd, kubelet and kube-proxy. It needs root.
    Node,
}

impl Shape {
    /// Returns the programs that this shape needs.
    pub fn parts(self) -> &'static [Part] {
        match self {
            Shape::ControlPlane => &[Part::ControlPlane],
            Shape::Simulated => &[Part::ControlPlane, Part::Kwok],
            Shape::Node => &[Part::ControlPlane, Part::Node],
        }
    }

    /// Returns the name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Shape::ControlPlane => "control-plane",
            Shape::Simulated => "simulated",
            Shape::Node => "node",
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Shape::ControlPlane, Shape::Simulated, Shape::Node]
            .into_iter()
            .find(|shape| shape.as_str() == text)
            .ok_or_else(|| format!("no shape is called {text:?}: use control-plane, simulated or node"))
    }
}
