//! The Service in front of the replicas of a service that run as processes beside a cluster: what the kubelet and its controllers would
//! see to if they ran in pods.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Kind, NAMESPACE};

const FIELD_MANAGER: &str = "podward-support";
const PORT: u16 = 9443;

/// One address for all replicas of a kind. kube-proxy chooses among those that are ready.
pub(super) struct Front {
    client: Client,
    kind: Kind,
    address: SocketAddr,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").field("kind", &self.kind).field("address", &self.address).finish()
    }
}

impl Front {
    /// Makes the Service. It leads nowhere until replicas are ready.
    pub(super) async fn open(client: Client, kind: Kind) -> Result<Self> {
        let name = kind.as_str();
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"ports": [{"name": "grpc", "port": PORT}]},
        });
        let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
        let made = apply(&services, name, &service).await?;
        let address = made.spec.and_then(|spec| spec.cluster_ip).context("the Service has no address")?;
        let address: IpAddr = address.parse().with_context(|| format!("understand the address {address}"))?;
        Ok(Self { client, kind, address: SocketAddr::new(address, PORT) })
    }

    /// What is in front of.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Where all replicas are reached.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says whether the replica that serves at `at` takes calls.
    pub(super) async fn set(&self, replica: &str, at: SocketAddr, ready: bool) -> Result<()> {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": replica, "labels": {"kubernetes.io/service-name": self.kind.as_str()}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [at.ip().to_string()], "conditions": {"ready": ready}}],
            "ports": [{"name": "grpc", "port": at.port()}],
        });
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), NAMESPACE);
        apply(&slices, replica, &slice).await.map(drop)
    }
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value) -> Result<K>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let applied = api.patch(name, &parameters, &Patch::Apply(object)).await;
    applied.with_context(|| format!("apply {} {NAMESPACE}/{name}", object["kind"]))
}
