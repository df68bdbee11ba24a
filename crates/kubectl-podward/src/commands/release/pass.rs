//! Goes over pods, as often as something was left on one.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::pin_mut;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};

use super::tally::Tally;
use super::write::{Ended, Writer};

/// Pods in one answer of the API server.
const PAGE: u32 = 250;
/// One page of a large cluster.
const ANSWER: Duration = Duration::from_secs(30);
/// Pods that are written at once.
const AT_ONCE: usize = 16;
/// Times that pods are gone over. One writes, the next finds nothing; more are needed only when pods come meanwhile that a webhook
/// has seen before its configuration was gone everywhere.
const PASSES: usize = 4;

/// The pods that are looked at.
pub(super) struct Targets {
    api: Api<Pod>,
    /// Only these.
    names: Vec<String>,
}

impl Targets {
    /// Pods by name, in `namespace` or the context's own; without names all of `namespace`, without either all there are.
    pub(super) fn new(client: &Client, namespace: Option<String>, names: Vec<String>) -> Self {
        let api = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), &namespace),
            None if names.is_empty() => Api::all(client.clone()),
            None => Api::default_namespaced(client.clone()),
        };
        Targets { api, names }
    }

    /// Page by page, so that a large cluster's pods are never all in memory.
    fn pods(&self) -> impl Stream<Item = Result<Pod>> {
        let named = stream::iter(&self.names).then(move |name| async move {
            let get = tokio::time::timeout(ANSWER, self.api.get_opt(name)).await;
            let found = get.map_err(|_| anyhow!("no answer from the API server within {ANSWER:?}"));
            let found = found.and_then(|found| found.map_err(Into::into));
            let found = found.with_context(|| format!("look up pod {name}"))?;
            if found.is_none() {
                eprintln!("there is no pod {name}");
            }
            anyhow::Ok(found)
        });
        let first = self.names.is_empty().then(|| ListParams::default().limit(PAGE));
        let listed = stream::try_unfold(first, move |asked| async move {
            let Some(asked) = asked else { return Ok(None) };
            let list = tokio::time::timeout(ANSWER, self.api.list(&asked)).await;
            let list = list.map_err(|_| anyhow!("no answer from the API server within {ANSWER:?}"));
            let page = list.and_then(|list| list.map_err(Into::into)).context("list pods")?;
            let token = page.metadata.continue_.filter(|token| !token.is_empty());
            let next = token.map(|token| ListParams::default().limit(PAGE).continue_token(&token));
            anyhow::Ok(Some((stream::iter(page.items.into_iter().map(anyhow::Ok)), next)))
        });
        named.try_filter_map(async |found| Ok(found)).chain(listed.try_flatten())
    }
}

/// Releases all of `targets` until a pass finds nothing to write; what becomes of each goes into `tally`.
///
/// # Errors
/// When pods can't be listed. A pod that can't be released is in the tally.
pub(super) async fn until_nothing_is_left(
    targets: &Targets,
    writer: &Writer,
    tally: &mut Tally,
) -> Result<()> {
    for _ in 0..PASSES {
        tally.begin_pass();
        let mut was_written = false;
        let outcomes = targets.pods().map(|pod| async {
            match pod {
                Ok(pod) => Ok(writer.release(pod).await),
                Err(error) => Err(error),
            }
        });
        let outcomes = outcomes.buffer_unordered(AT_ONCE);
        pin_mut!(outcomes);
        while let Some(outcome) = outcomes.try_next().await? {
            was_written |= outcome.ended == Ended::Released;
            tally.add(outcome);
        }
        if !was_written || writer.is_dry_run() {
            break;
        }
    }
    Ok(())
}
