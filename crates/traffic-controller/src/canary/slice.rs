//! The EndpointSlice of the canary.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use podward_runtime::retry::api_call;

use crate::index::AddressFamily;

const GENERATION: &str = "podward.io/canary-generation";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The Service of the canary and its slice, which has the same name.
pub(super) struct CanarySlice {
    slices: Api<EndpointSlice>,
    services: Api<Service>,
    name: String,
}

impl CanarySlice {
    pub(super) fn new(client: Client, namespace: &str, name: String) -> Self {
        Self {
            slices: Api::namespaced(client.clone(), namespace),
            services: Api::namespaced(client, namespace),
            name,
        }
    }

    /// Returns the port of the nodes that leads to the canary.
    ///
    /// # Errors
    /// Fails if the Service cannot be read or has no such port.
    pub(super) async fn node_port(&self) -> anyhow::Result<u16> {
        let service = api_call(self.services.get(&self.name)).await;
        let service =
            service.with_context(|| format!("could not read Service {} of the canary", self.name))?;
        let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
        let port = ports.first().and_then(|port| port.node_port).and_then(|port| u16::try_from(port).ok());
        port.with_context(|| format!("Service {} of the canary has no NodePort", self.name))
    }

    /// Makes `address` and `port` the only endpoint. `next` returns the new generation for the stored one. Returns the
    /// new generation, or `None` if another process has written meanwhile.
    ///
    /// # Errors
    /// Fails if the slice cannot be read or written.
    pub(super) async fn write(
        &self,
        address: IpAddr,
        port: u16,
        next: impl Fn(u64) -> u64,
    ) -> anyhow::Result<Option<u64>> {
        let failed = |what: &str| format!("could not {what} EndpointSlice {} of the canary", self.name);
        let family = AddressFamily::of(address).as_str();
        let stored = api_call(self.slices.get_opt(&self.name)).await.with_context(|| failed("read"))?;
        if stored.as_ref().is_some_and(|slice| slice.address_type != family) {
            bail!("EndpointSlice {} of the canary is not of {family}; delete it", self.name);
        }
        let metadata = stored.map(|slice| slice.metadata);
        let annotation =
            metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref()?.get(GENERATION));
        let generation = next(annotation.and_then(|text| text.parse().ok()).unwrap_or_default());
        let pairs = |pairs: &[(&str, String)]| {
            Some(
                pairs
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), value.clone()))
                    .collect::<BTreeMap<_, _>>(),
            )
        };
        let slice = EndpointSlice {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                // The precondition: the order of the generations is the order of the writes.
                resource_version: metadata.as_ref().and_then(|metadata| metadata.resource_version.clone()),
                labels: pairs(&[
                    (SERVICE_NAME, self.name.clone()),
                    (MANAGED_BY, "traffic-controller.podward.io".to_owned()),
                ]),
                annotations: pairs(&[(GENERATION, generation.to_string())]),
                ..ObjectMeta::default()
            },
            address_type: family.to_owned(),
            endpoints: vec![Endpoint {
                addresses: vec![address.to_string()],
                conditions: Some(EndpointConditions { ready: Some(true), ..EndpointConditions::default() }),
                ..Endpoint::default()
            }],
            ports: Some(vec![EndpointPort { port: Some(port.into()), ..EndpointPort::default() }]),
        };
        let params = PostParams::default();
        let written = match metadata {
            Some(_) => api_call(self.slices.replace(&self.name, &params, &slice)).await,
            None => api_call(self.slices.create(&params, &slice)).await,
        };
        match written {
            Ok(_) => Ok(Some(generation)),
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error).with_context(|| failed("write")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use kube::Config;
    use podward_runtime::retry::API_TIMEOUT;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_is_an_error() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        let slice = CanarySlice::new(client, "podward", "canary".to_owned());
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let both = async { tokio::join!(slice.node_port(), slice.write(address, 1, |before| before + 1)) };
        let (read, written) = timeout(API_TIMEOUT * 2, both).await.expect("they wait for longer");
        for error in [read.unwrap_err(), written.unwrap_err()] {
            assert!(format!("{error:#}").contains("no answer from the API server"), "{error:#}");
        }
    }
}
