//! Releases pods in several passes.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::pin_mut;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};

use super::tally::ReleaseTally;
use super::write::{PodReleaseResult, ReleaseWriter};

/// The number of pods in one page of a list.
const PAGE_SIZE: u32 = 250;
/// The deadline of a request for a page.
const API_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 16;
/// The maximum number of passes. Normally the first pass writes and the second finds nothing to write. More are needed
/// only if an API server still calls the webhooks for new pods, because it has not seen yet that their configuration
/// was deleted.
const MAX_PASSES: usize = 4;

/// The pods to release.
pub(super) struct TargetPods {
    api: Api<Pod>,
    /// The names of single pods. If empty, all pods.
    names: Vec<String>,
}

impl TargetPods {
    /// Selects the pods `names` in `namespace` or in the namespace of the context. Without names, selects all pods of
    /// `namespace`. Without both, selects all pods of the cluster.
    pub(super) fn new(client: &Client, namespace: Option<String>, names: Vec<String>) -> Self {
        let api = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), &namespace),
            None if names.is_empty() => Api::all(client.clone()),
            None => Api::default_namespaced(client.clone()),
        };
        TargetPods { api, names }
    }

    /// Returns the pods, page by page, so that the pods of a large cluster are never in memory at the same time.
    fn pods(&self) -> impl Stream<Item = Result<Pod>> {
        let named = stream::iter(&self.names).then(move |name| async move {
            let get = tokio::time::timeout(API_TIMEOUT, self.api.get_opt(name)).await;
            let found = get.map_err(|_| anyhow!("no answer from the API server within {API_TIMEOUT:?}"));
            let found = found.and_then(|found| found.map_err(Into::into));
            let found = found.with_context(|| format!("look up pod {name}"))?;
            if found.is_none() {
                eprintln!("there is no pod {name}");
            }
            anyhow::Ok(found)
        });
        let first = self.names.is_empty().then(|| ListParams::default().limit(PAGE_SIZE));
        let listed = stream::try_unfold(first, move |page| async move {
            let Some(params) = page else { return Ok(None) };
            let list = tokio::time::timeout(API_TIMEOUT, self.api.list(&params)).await;
            let list = list.map_err(|_| anyhow!("no answer from the API server within {API_TIMEOUT:?}"));
            let page = list.and_then(|list| list.map_err(Into::into)).context("list pods")?;
            let token = page.metadata.continue_.filter(|token| !token.is_empty());
            let next = token.map(|token| ListParams::default().limit(PAGE_SIZE).continue_token(&token));
            anyhow::Ok(Some((stream::iter(page.items.into_iter().map(anyhow::Ok)), next)))
        });
        named.try_filter_map(async |found| Ok(found)).chain(listed.try_flatten())
    }
}

/// Releases the pods of `targets` until a pass finds nothing to write. Adds the outcome of each pod to `tally`.
///
/// # Errors
/// When pods cannot be listed. A pod that cannot be released is in the tally.
pub(super) async fn release_all(
    targets: &TargetPods,
    writer: &ReleaseWriter,
    tally: &mut ReleaseTally,
) -> Result<()> {
    for _ in 0..MAX_PASSES {
        tally.begin_pass();
        let mut was_written = false;
        let outcomes = targets.pods().map(|pod| async {
            match pod {
                Ok(pod) => Ok(writer.release(pod).await),
                Err(error) => Err(error),
            }
        });
        let outcomes = outcomes.buffer_unordered(MAX_CONCURRENT_WRITES);
        pin_mut!(outcomes);
        while let Some(outcome) = outcomes.try_next().await? {
            was_written |= outcome.result == PodReleaseResult::Released;
            tally.add(outcome);
        }
        if !was_written || writer.is_dry_run() {
            break;
        }
    }
    Ok(())
}
