//! The cluster DNS: CoreDNS in a pod, as kubeadm installs it.

use std::{fmt::Debug, io};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, Client, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{CLUSTER_DOMAIN, Context, DNS_IP};
use podward_images::Image;

use crate::error::{During, TestClusterError};

/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The name of all objects except the Service. The Service has the name of CoreDNS's predecessor.
pub(crate) const NAME: &str = "coredns";

/// The image that the Deployment runs.
const IMAGE: &str = "podward.local/coredns:1";

/// Returns the image with CoreDNS.
pub(crate) fn image(context: Context<'_>) -> Image {
    Image::new(IMAGE).file(context.tools.bin(NAME), "/coredns", 0o755).entrypoint(["/coredns"])
}

/// Returns the configuration of kubeadm, with one change: names outside of the cluster do not exist. There is no
/// other DNS server, and clients must not wait until that is found out. These names need a block of their own,
/// because within a block the plugin `template` comes before `kubernetes`, whatever their order in the file.
fn corefile() -> String {
    format!(
        "\
{CLUSTER_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 30
    }}
    prometheus :9153
    cache 30 {{
        disable success {CLUSTER_DOMAIN}
        disable denial {CLUSTER_DOMAIN}
    }}
    reload
    loadbalance
}}
.:53 {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"
    )
}

/// Creates all objects, as soon as the namespace exists.
pub(crate) async fn create(client: &Client) -> Result<(), TestClusterError> {
    tokio::try_join!(
        make(Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE), named(NAME, json!({}))),
        make(Api::<ClusterRole>::all(client.clone()), named("system:coredns", role())),
        make(Api::<ClusterRoleBinding>::all(client.clone()), named("system:coredns", binding())),
        make(
            Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE),
            named(NAME, json!({"data": {"Corefile": corefile()}})),
        ),
        make(Api::<Service>::namespaced(client.clone(), NAMESPACE), named("kube-dns", service())),
    )?;
    // The API server rejects the pod while it has no service account.
    make(Api::<Deployment>::namespaced(client.clone(), NAMESPACE), named(NAME, deployment())).await
}

async fn make<K>(api: Api<K>, object: Value) -> Result<(), TestClusterError>
where
    K: k8s_openapi::Resource + Clone + Debug + DeserializeOwned + Serialize,
{
    let what = || format!("create the {} of the cluster's DNS", K::KIND);
    let object: K = serde_json::from_value(object).map_err(io::Error::from).during(what)?;
    api.create(&PostParams::default(), &object).await.map(drop).during(what)
}

/// Returns the object with its name and with the label by which tools find the cluster DNS.
fn named(name: &str, mut object: Value) -> Value {
    object["metadata"] = json!({"name": name, "labels": {"k8s-app": "kube-dns"}});
    object
}

fn role() -> Value {
    json!({"rules": [
        {
            "apiGroups": [""],
            "resources": ["endpoints", "services", "pods", "namespaces"],
            "verbs": ["list", "watch"],
        },
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]})
}

fn binding() -> Value {
    json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    })
}

fn service() -> Value {
    json!({"spec": {
        "clusterIP": DNS_IP,
        "selector": {"k8s-app": "kube-dns"},
        "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            {"name": "metrics", "port": 9153, "protocol": "TCP"},
        ],
    }})
}

fn deployment() -> Value {
    let labels = json!({"k8s-app": "kube-dns"});
    let container = json!({
        "name": NAME,
        "image": IMAGE,
        // There is no registry to pull from.
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"limits": {"memory": "170Mi"}, "requests": {"cpu": "100m", "memory": "70Mi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": true}],
        "ports": [
            {"containerPort": 53, "name": "dns", "protocol": "UDP"},
            {"containerPort": 53, "name": "dns-tcp", "protocol": "TCP"},
            {"containerPort": 9153, "name": "metrics", "protocol": "TCP"},
        ],
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": 8080},
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
            "failureThreshold": 5,
        },
        // The interval is short, because the start of a cluster waits for the probe.
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
    });
    json!({"spec": {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "priorityClassName": "system-cluster-critical",
                "serviceAccountName": NAME,
                // CoreDNS resolves names with the node's settings, not with itself.
                "dnsPolicy": "Default",
                "containers": [container],
                "volumes": [{"name": "config", "configMap": {"name": NAME}}],
            },
        },
    }})
}
