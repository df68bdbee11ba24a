//! The addresses of the API server, which URLs of users must not lead to.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use podward_runtime::address_policy::ApiServerAddresses;
use podward_runtime::admin::ReadinessCondition;
use tokio_util::sync::CancellationToken;

use crate::watched::{Watch, WatchMetrics, Watched};

/// The Service and the EndpointSlice of the API server, which the API server itself writes.
const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";

/// Keeps `addresses` up to date until `stop`, with the Service `default/kubernetes` and its endpoints. Addresses that
/// were read stay while a watch fails.
pub fn follow(
    client: &Client,
    addresses: &ApiServerAddresses,
    metrics: &WatchMetrics,
    stop: &CancellationToken,
) {
    let watch = |name| Watch {
        name,
        listed: ReadinessCondition::default(),
        metrics: metrics.clone(),
        may_be_absent: false,
        stop: stop.clone(),
    };
    let one = || watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let known = addresses.clone();
    Watched::keep(
        watch("api-server"),
        move || watcher(services.clone(), one()),
        |service: Service| Some(of_service(&service)),
        move |found| known.set_service(all(found)),
    );
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    let known = addresses.clone();
    Watched::keep(
        watch("api-server-endpoints"),
        move || watcher(slices.clone(), one()),
        |slice: EndpointSlice| Some(of_slice(&slice)),
        move |found| known.set_endpoints(all(found)),
    );
}

fn all(found: &HashMap<String, BTreeSet<IpAddr>>) -> Vec<IpAddr> {
    found.values().flatten().copied().collect()
}

fn of_service(service: &Service) -> BTreeSet<IpAddr> {
    let spec = service.spec.iter();
    let addresses = spec.flat_map(|spec| spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip));
    addresses.filter_map(|address| address.parse().ok()).collect()
}

fn of_slice(slice: &EndpointSlice) -> BTreeSet<IpAddr> {
    let addresses = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    addresses.filter_map(|address| address.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ips(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn all_addresses_of_the_service_and_its_endpoints_are_read() {
        let spec = json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00:10:96::1"]});
        let service: Service = serde_json::from_value(json!({"spec": spec})).unwrap();
        assert_eq!(of_service(&service), ips(&["10.96.0.1", "fd00:10:96::1"]));
        let headless: Service = serde_json::from_value(json!({"spec": {"clusterIP": "None"}})).unwrap();
        assert_eq!(of_service(&headless), ips(&[]));
        let slice: EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.7"]}, {"addresses": ["192.0.2.8"]}],
        }))
        .unwrap();
        assert_eq!(of_slice(&slice), ips(&["192.0.2.7", "192.0.2.8"]));
    }
}
