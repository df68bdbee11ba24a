//! The Services and EndpointSlices of a namespace, for all of its pods.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use anyhow::{Error, Result};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, OnceCell};

use crate::api::list_all;

type Shared<T> = Result<Arc<Vec<T>>, String>;
type SharedCell = OnceCell<(Shared<Service>, Shared<EndpointSlice>)>;

/// Each namespace is read when it is needed first.
#[derive(Default)]
pub(super) struct SharedServices(Mutex<HashMap<String, Arc<SharedCell>>>);

impl SharedServices {
    /// Returns the Services and the EndpointSlices, or why they cannot be listed.
    pub(super) async fn read(
        &self,
        client: &Client,
        namespace: &str,
    ) -> (Result<Arc<Vec<Service>>>, Result<Arc<Vec<EndpointSlice>>>) {
        let cell = self.0.lock().await.entry(namespace.to_owned()).or_default().clone();
        let read = async || futures::join!(list(client, namespace), list(client, namespace));
        let (services, slices) = cell.get_or_init(read).await.clone();
        (services.map_err(Error::msg), slices.map_err(Error::msg))
    }
}

async fn list<T>(client: &Client, namespace: &str) -> Shared<T>
where
    T: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<T> = Api::namespaced(client.clone(), namespace);
    list_all(&api, ListParams::default()).await.map(Arc::new).map_err(|error| format!("{error:#}"))
}
