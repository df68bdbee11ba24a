//! The object that a command is about.

use anyhow::Result;

use crate::workload_kind::WorkloadKind;

/// The object that a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObjectTarget {
    Pod(String),
    Node(String),
    Workload(WorkloadKind, String),
}

impl ObjectTarget {
    /// Parses `NAME` or `KIND/NAME`, with the names and short names of kinds as in kubectl.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let Some((kind, name)) = text.split_once('/') else { return Ok(ObjectTarget::Pod(text.to_owned())) };
        let name = name.to_owned();
        Ok(match kind.split('.').next().unwrap_or(kind).to_lowercase().as_str() {
            "po" | "pod" | "pods" => ObjectTarget::Pod(name),
            "no" | "node" | "nodes" => ObjectTarget::Node(name),
            _ => ObjectTarget::Workload(WorkloadKind::parse(kind)?, name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_in_kubectl() {
        let parse = |text: &str| ObjectTarget::parse(text).unwrap();
        assert_eq!(parse("web-0"), ObjectTarget::Pod("web-0".to_owned()));
        assert_eq!(parse("node/n1"), ObjectTarget::Node("n1".to_owned()));
        for text in ["deploy/web", "deployment/web", "Deployments.apps/web"] {
            assert_eq!(parse(text), ObjectTarget::Workload(WorkloadKind::Deployment, "web".to_owned()));
        }
        assert!(ObjectTarget::parse("svc/web").is_err());
    }
}
