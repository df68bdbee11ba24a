//! What runs in the cluster.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

/// What runs in the cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterFacts {
    pub(super) programs: Vec<RunningProgram>,
    /// The names of resource definitions.
    pub(super) definitions: Vec<String>,
    /// The data of the ConfigMaps `kube-proxy` and `cilium-config` in kube-system, if they exist.
    pub(super) kube_proxy: Option<String>,
    pub(super) cilium: Option<Vec<(String, String)>>,
}

/// A container of a Deployment or DaemonSet.
#[derive(Debug, Default)]
pub(super) struct RunningProgram {
    /// `Deployment NAMESPACE/NAME`.
    pub(super) owner: String,
    /// The name of the workload.
    pub(super) name: String,
    pub(super) image: String,
    /// Its command and arguments.
    pub(super) arguments: Vec<String>,
}

impl RunningProgram {
    /// Returns the value of an argument, `--name=VALUE` or `--name VALUE`.
    pub(super) fn argument(&self, name: &str) -> Option<&str> {
        let mut words = self.arguments.iter();
        while let Some(word) = words.next() {
            match word.strip_prefix(name) {
                Some("") => return words.next().map(String::as_str),
                Some(rest) if rest.starts_with('=') => return rest.get(1..),
                _ => {}
            }
        }
        None
    }

    /// Returns whether the image is `name`, from any registry.
    fn is(&self, name: &str) -> bool {
        let path = self.image.split(['@']).next().unwrap_or_default();
        let last = path.rsplit('/').next().unwrap_or_default();
        last.split(':').next() == Some(name)
    }
}

impl ClusterFacts {
    pub(super) async fn read(client: &Client) -> Result<Self> {
        let everything = ListParams::default();
        let deployments: Api<Deployment> = Api::all(client.clone());
        let daemons: Api<DaemonSet> = Api::all(client.clone());
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
        let (deployments, daemons, definitions, kube_proxy, cilium) = futures::try_join!(
            async { deployments.list(&everything).await.context("list Deployments") },
            async { daemons.list(&everything).await.context("list DaemonSets") },
            async { definitions.list_metadata(&everything).await.context("list resource definitions") },
            async { maps.get_opt("kube-proxy").await.context("read ConfigMap kube-system/kube-proxy") },
            async { maps.get_opt("cilium-config").await.context("read ConfigMap kube-system/cilium-config") },
        )?;
        let mut programs = Vec::new();
        for deployment in &deployments.items {
            let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            let (namespace, name) = (deployment.namespace().unwrap_or_default(), deployment.name_any());
            programs.extend(programs_of("Deployment", &namespace, &name, spec));
        }
        for daemon in &daemons.items {
            let spec = daemon.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            let (namespace, name) = (daemon.namespace().unwrap_or_default(), daemon.name_any());
            programs.extend(programs_of("DaemonSet", &namespace, &name, spec));
        }
        Ok(Self {
            programs,
            definitions: definitions.items.iter().map(ResourceExt::name_any).collect(),
            kube_proxy: kube_proxy.and_then(|map| map.data?.remove("config.conf")),
            cilium: cilium.and_then(|map| map.data).map(|data| data.into_iter().collect()),
        })
    }

    /// Returns the first program with this image.
    pub(super) fn program(&self, image: &str) -> Option<&RunningProgram> {
        self.programs.iter().find(|program| program.is(image))
    }
}

fn programs_of(kind: &str, namespace: &str, name: &str, spec: Option<&PodSpec>) -> Vec<RunningProgram> {
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let program = |container: &k8s_openapi::api::core::v1::Container| RunningProgram {
        owner: format!("{kind} {namespace}/{name}"),
        name: name.to_owned(),
        image: container.image.clone().unwrap_or_default(),
        arguments: container.command.iter().chain(&container.args).flatten().cloned().collect(),
    };
    containers.iter().map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_images_are_read() {
        let program = RunningProgram {
            image: "registry.k8s.io/autoscaling/cluster-autoscaler:v1.33@sha256:0".to_owned(),
            arguments: ["./ca", "--a=1", "--b", "2", "--flag"].map(str::to_owned).to_vec(),
            ..RunningProgram::default()
        };
        assert_eq!((program.argument("--a"), program.argument("--b")), (Some("1"), Some("2")));
        assert_eq!((program.argument("--c"), program.argument("--flag")), (None, None));
        assert!(program.is("cluster-autoscaler") && !program.is("autoscaler"));
        let with_port = RunningProgram { image: "host:5000/kured".to_owned(), ..RunningProgram::default() };
        assert!(with_port.is("kured"));
    }
}
