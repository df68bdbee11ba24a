//! Waits for the state of one object.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, pin_mut};
use kube::Api;
use kube::runtime::wait::Condition;
use kube::runtime::{WatchStreamExt, watcher::watch_object};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// How long a watch may fail. An API server that has just got a definition rejects watches of its objects for a moment.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` is true for the object `name`, and returns the object. Unlike the function of the same name in
/// kube, it goes on if a watch fails, because kube's watcher watches again.
///
/// # Errors
/// Fails if the object cannot be watched for 30 seconds.
pub async fn await_condition<K>(api: Api<K>, name: &str, condition: impl Condition<K>) -> Result<Option<K>>
where
    K: kube::Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let objects = watch_object(api, name).default_backoff();
    pin_mut!(objects);
    let mut failing_since = None;
    while let Some(object) = objects.next().await {
        match object {
            Ok(object) if condition.matches_object(object.as_ref()) => return Ok(object),
            Ok(_) => failing_since = None,
            Err(error) => {
                let since = *failing_since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return Err(error).with_context(|| format!("watch {name}"));
                }
            }
        }
    }
    bail!("the watch of {name} ended")
}
