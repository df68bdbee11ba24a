//! Reads Services in the namespace of a pod.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use podward_core::is_object_name;
use podward_kube_util::{ApiError, PodKey, pod_call};

/// The maximum number of Services that are read by name. If there are more, the namespace is listed.
const MAX_READS: usize = 8;
/// The number of Services in a page of the list.
const PAGE: u32 = 500;

/// By name: the selectors of Services. The selector of a Service that has none is empty.
pub(crate) type ServiceSelectors = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the selectors of the Services `names` that exist in the namespace of `pod`. `what` is the attempted action,
/// as in [`pod_call`].
///
/// Whoever may patch the pod decides how many names there are, so the number of requests does not grow with it. All
/// requests together have one timeout.
///
/// # Errors
/// If the API server cannot be asked. An error never counts as a missing Service.
pub(crate) async fn service_selectors(
    what: &'static str,
    client: &Client,
    pod: &PodKey,
    names: impl Iterator<Item = &str>,
) -> Result<ServiceSelectors, ApiError> {
    // No Service can have another name, and a request with it can lead to another path.
    let names: BTreeSet<&str> = names.filter(|name| is_object_name(name)).collect();
    let api: Api<Service> = Api::namespaced(client.clone(), &pod.namespace);
    let selectors = async {
        if names.len() > MAX_READS {
            return list(&api, &names).await;
        }
        let found = try_join_all(names.iter().map(|name| api.get_opt(name))).await?;
        Ok(found.into_iter().flatten().map(name_and_selector).collect())
    };
    pod_call(what, pod, selectors).await
}

/// Lists the Services in pages, which all show the moment of the first.
async fn list(api: &Api<Service>, names: &BTreeSet<&str>) -> kube::Result<ServiceSelectors> {
    let mut params = ListParams::default().limit(PAGE);
    let mut selectors = ServiceSelectors::new();
    loop {
        let page = api.list(&params).await?;
        let services = page.items.into_iter().map(name_and_selector);
        selectors.extend(services.filter(|(name, _)| names.contains(name.as_str())));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(selectors),
        }
    }
}

fn name_and_selector(service: Service) -> (String, BTreeMap<String, String>) {
    (service.name_any(), service.spec.and_then(|spec| spec.selector).unwrap_or_default())
}

#[cfg(test)]
pub(crate) mod fixture;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::fixture::ServiceApi;
    use super::*;

    async fn selectors(server: &ServiceApi, names: usize) -> Result<ServiceSelectors, ApiError> {
        let names: Vec<String> = (0..names).map(|number| format!("web-{number}")).collect();
        let pod = PodKey { namespace: "shop".to_owned(), name: "web-0".to_owned() };
        service_selectors("look up a Service of", &server.client(), &pod, names.iter().map(String::as_str))
            .await
    }

    fn services() -> [(&'static str, Value); 2] {
        [("other", json!({"app": "other"})), ("web-1", json!({"app": "web"}))]
    }

    #[tokio::test]
    async fn few_and_many_services_have_the_same_result() {
        for (names, requests) in [(0, 0), (MAX_READS, MAX_READS), (MAX_READS + 1, 2)] {
            let server = ServiceApi::new(services());
            let found = selectors(&server, names).await.unwrap();
            assert_eq!(server.requests(), requests, "{names} names");
            let found: Vec<_> =
                found.iter().map(|(name, selector)| (name.as_str(), selector["app"].as_str())).collect();
            assert_eq!(found, if names == 0 { vec![] } else { vec![("web-1", "web")] });
        }
    }

    /// The missing pages can contain the Services.
    #[tokio::test]
    async fn an_incomplete_list_is_an_error() {
        for page in [0, 1] {
            let server = ServiceApi::with_expired_page(services(), Some(page));
            selectors(&server, MAX_READS + 1).await.unwrap_err();
        }
    }
}
