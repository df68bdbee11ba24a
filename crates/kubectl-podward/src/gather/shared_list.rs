//! The objects of a kind in a namespace, for all of its pods.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, OnceCell};

use crate::api::{is_not_found, list_all};

/// The objects, or why they cannot be listed.
pub(crate) type Listed<T> = Result<Arc<Vec<T>>, String>;

/// Each namespace is read when it is needed first.
pub(super) struct SharedList<T>(Mutex<HashMap<String, Arc<OnceCell<Listed<T>>>>>);

// The derived implementation would ask for `T: Default`.
impl<T> Default for SharedList<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> SharedList<T>
where
    T: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    /// Returns the objects of a namespace. A cluster without the kind has none.
    pub(super) async fn read(&self, client: &Client, namespace: &str) -> Listed<T> {
        let cell = self.0.lock().await.entry(namespace.to_owned()).or_default().clone();
        let read = async || {
            let api: Api<T> = Api::namespaced(client.clone(), namespace);
            match list_all(&api, ListParams::default()).await {
                Err(error) if is_not_found(&error) => Ok(Arc::default()),
                listed => listed.map(Arc::new).map_err(|error| format!("{error:#}")),
            }
        };
        cell.get_or_init(read).await.clone()
    }
}
