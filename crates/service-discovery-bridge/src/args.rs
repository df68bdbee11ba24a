//! Command line arguments.

use std::path::PathBuf;

use clap::Parser;
use podward_runtime::args::{AddressArgs, CertificateArgs, ControllerArgs, KubeArgs, NodeArgs, ProcessArgs};

/// Registers pods in service registries outside Kubernetes, takes them out of service before an operation, and reports the
/// evidence
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) kube: KubeArgs,
    #[command(flatten)]
    pub(crate) addresses: AddressArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// Its namespace is also that of the Leases of the replicas, and of the Secrets of ClusterRegistries
    #[command(flatten)]
    pub(crate) certificate: CertificateArgs,
    /// Name of this replica's pod. No two replicas have the same one
    #[arg(long, env = "PODWARD_POD_NAME", value_name = "NAME")]
    pub(crate) pod_name: String,
    /// Id of the Kubernetes cluster in the marks of instances. Each cluster that uses a registry needs another one. The
    /// default is the UID of the namespace kube-system
    #[arg(long, env = "PODWARD_CLUSTER_ID", value_name = "ID", value_parser = cluster_id)]
    pub(crate) cluster_id: Option<String>,
    /// Answer the lifecycle protocol of OpenKruise for pods of its CloneSets and StatefulSets: write the labels and finalizers
    /// that their spec.lifecycle names
    #[arg(long, env = "PODWARD_KRUISE")]
    pub(crate) kruise: bool,
    #[command(flatten)]
    pub(crate) controller: ControllerArgs,
    /// File with the token that is sent to the lifecycle-controller; read again when it changes
    #[arg(
        long,
        env = "PODWARD_TOKEN_FILE",
        value_name = "FILE",
        default_value = "/var/run/secrets/podward/token"
    )]
    pub(crate) token_file: PathBuf,
}

fn cluster_id(text: &str) -> Result<String, String> {
    let is_valid = !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    match is_valid {
        true => Ok(text.to_owned()),
        false => Err("must have 1 to 63 letters, digits, '-', '.' or '_'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_parsed() {
        Args::command().debug_assert();
        let args = Args::parse_from(["x", "--pod-name", "a", "--cluster-id", "eu-1"]);
        assert_eq!(args.cluster_id.as_deref(), Some("eu-1"));
        for bad in ["", "a/b", "ä"] {
            assert!(Args::try_parse_from(["x", "--pod-name", "a", "--cluster-id", bad]).is_err(), "{bad}");
        }
    }
}
