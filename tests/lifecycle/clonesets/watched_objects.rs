//! Waits for objects of a namespace.

use std::fmt::Debug;
use std::sync::Arc;

use anyhow::{Context, Result};
use futures::TryStreamExt;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Resource};
use podward_support::{WAIT, within};
use serde::de::DeserializeOwned;

/// Watches the objects until they fit, and returns them.
pub(super) async fn until_objects<K>(
    api: Api<K>,
    what: &str,
    test: impl Fn(&[Arc<K>]) -> bool,
) -> Result<Vec<Arc<K>>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    let mut events = std::pin::pin!(events);
    let watched = async {
        loop {
            events.try_next().await.context("watch objects")?.context("the watch has ended")?;
            let objects = store.state();
            if test(&objects) {
                return Ok(objects);
            }
        }
    };
    within(WAIT, || what.to_owned(), watched).await
}
