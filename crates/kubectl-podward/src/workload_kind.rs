//! The kinds of workloads, as the command line names them.

use anyhow::{Result, bail};

/// The kinds of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    Deployment,
    StatefulSet,
    ReplicaSet,
    DaemonSet,
    Job,
    CloneSet,
}

impl WorkloadKind {
    /// The word in commands of kubectl.
    pub(crate) fn word(self) -> &'static str {
        match self {
            WorkloadKind::Deployment => "deployment",
            WorkloadKind::StatefulSet => "statefulset",
            WorkloadKind::ReplicaSet => "replicaset",
            WorkloadKind::DaemonSet => "daemonset",
            WorkloadKind::Job => "job",
            WorkloadKind::CloneSet => "cloneset",
        }
    }

    /// The API version and the kind.
    pub(crate) fn api(self) -> (&'static str, &'static str, &'static str) {
        match self {
            WorkloadKind::Deployment => ("apps", "v1", "Deployment"),
            WorkloadKind::StatefulSet => ("apps", "v1", "StatefulSet"),
            WorkloadKind::ReplicaSet => ("apps", "v1", "ReplicaSet"),
            WorkloadKind::DaemonSet => ("apps", "v1", "DaemonSet"),
            WorkloadKind::Job => ("batch", "v1", "Job"),
            WorkloadKind::CloneSet => ("apps.kruise.io", "v1alpha1", "CloneSet"),
        }
    }

    /// Parses the name of a kind as in kubectl: `deploy`, `deployments`, `deployments.apps`.
    ///
    /// # Errors
    /// When it is none of these kinds.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // `deployments.apps` names the group, too.
        let word = text.split('.').next().unwrap_or(text).to_lowercase();
        Ok(match word.as_str() {
            "deploy" | "deployment" | "deployments" => WorkloadKind::Deployment,
            "sts" | "statefulset" | "statefulsets" => WorkloadKind::StatefulSet,
            "rs" | "replicaset" | "replicasets" => WorkloadKind::ReplicaSet,
            "ds" | "daemonset" | "daemonsets" => WorkloadKind::DaemonSet,
            "job" | "jobs" => WorkloadKind::Job,
            "clone" | "cloneset" | "clonesets" => WorkloadKind::CloneSet,
            _ => bail!("the kind {text} is not known: use deploy, sts, rs, ds, job or cloneset"),
        })
    }
}
