//! Releases pods in several passes.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::pin_mut;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};

use super::tally::ReleaseTally;
use super::write::{PodReleaseOutcome, PodReleaseResult, ReleaseWriter};
use crate::api::{is_expired, within};

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

/// What a pass comes across.
enum Target {
    Pod(Box<Pod>),
    /// No pod has this name.
    Missing(String),
    /// The next page is not available any more: the pass has not seen all pods.
    Expired,
}

/// What came of it.
enum Outcome {
    Pod(Box<PodReleaseOutcome>),
    Missing(String),
    Expired,
}

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
    fn pods(&self) -> impl Stream<Item = Result<Target>> {
        let named = stream::iter(&self.names).then(move |name| async move {
            let found = within(API_TIMEOUT, self.api.get_opt(name)).await;
            anyhow::Ok(match found.with_context(|| format!("look up pod {name}"))? {
                Some(pod) => Target::Pod(Box::new(pod)),
                None => Target::Missing(name.clone()),
            })
        });
        let first = self.names.is_empty().then(|| ListParams::default().limit(PAGE_SIZE));
        let listed = stream::try_unfold(first, move |page| async move {
            let Some(params) = page else { return anyhow::Ok(None) };
            let page = match within(API_TIMEOUT, self.api.list(&params)).await {
                // The API server keeps the state of a list for some minutes, and the writes of a page can take longer.
                Err(error)
                    if params.continue_token.is_some() && error.downcast_ref().is_some_and(is_expired) =>
                {
                    return Ok(Some((stream::iter(vec![anyhow::Ok(Target::Expired)]), None)));
                }
                page => page.context("list pods")?,
            };
            let token = page.metadata.continue_.filter(|token| !token.is_empty());
            let next = token.map(|token| ListParams::default().limit(PAGE_SIZE).continue_token(&token));
            let pods = page.items.into_iter().map(|pod| Ok(Target::Pod(Box::new(pod))));
            Ok(Some((stream::iter(pods.collect::<Vec<_>>()), next)))
        });
        named.chain(listed.try_flatten())
    }
}

/// Releases the pods of `targets` until a pass finds nothing to write. Adds the outcome of each pod to `tally`. A pass that
/// does not see all pods is repeated, and not counted: each one finds more pods that are released already.
///
/// # Errors
/// When pods cannot be listed. A pod that cannot be released is in the tally.
pub(super) async fn release_all(
    targets: &TargetPods,
    writer: &ReleaseWriter,
    tally: &mut ReleaseTally,
) -> Result<()> {
    let mut passes = 0;
    while passes < MAX_PASSES {
        tally.begin_pass();
        let (mut was_written, mut is_complete) = (false, true);
        let outcomes = targets.pods().map(|target| async {
            anyhow::Ok(match target? {
                Target::Pod(pod) => Outcome::Pod(Box::new(writer.release(*pod).await)),
                Target::Missing(name) => Outcome::Missing(name),
                Target::Expired => Outcome::Expired,
            })
        });
        let outcomes = outcomes.buffer_unordered(MAX_CONCURRENT_WRITES);
        pin_mut!(outcomes);
        while let Some(outcome) = outcomes.try_next().await? {
            match outcome {
                Outcome::Pod(outcome) => {
                    was_written |= outcome.result == PodReleaseResult::Released;
                    tally.add(*outcome);
                }
                // Later, a pod may be missing because it was released.
                Outcome::Missing(name) if passes == 0 => tally.add_missing(name),
                Outcome::Missing(_) => {}
                Outcome::Expired => is_complete = false,
            }
        }
        if !is_complete {
            continue;
        }
        passes += 1;
        if !was_written || writer.is_dry_run() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::StatusCode;
    use podward_core::release::OtherFinalizers;
    use podward_support::api_answers::{failure, json_answer};
    use serde_json::json;

    use super::*;
    use crate::api_server;

    fn dry_run(client: &Client) -> ReleaseWriter {
        ReleaseWriter::new(client.clone(), OtherFinalizers::Keep, true)
    }

    #[tokio::test]
    async fn a_pass_whose_next_page_has_expired_is_repeated_and_not_counted() {
        let asked = AtomicUsize::new(0);
        let client = api_server::client(move |request| {
            let page = |name: &str, token: &str| {
                let items = json!([{"metadata": {"namespace": "shop", "name": name, "uid": name}}]);
                Some(json_answer(
                    &json!({"kind": "PodList", "metadata": {"continue": token}, "items": items}),
                ))
            };
            if !request.uri().query().unwrap_or_default().contains("continue=") {
                return page("a", "next");
            }
            match asked.fetch_add(1, Ordering::Relaxed) {
                asked if asked <= MAX_PASSES => Some(failure(StatusCode::GONE, "Expired")),
                _ => page("b", ""),
            }
        });
        let mut tally = ReleaseTally::quiet();
        let targets = TargetPods::new(&client, None, Vec::new());
        release_all(&targets, &dry_run(&client), &mut tally).await.unwrap();
        assert!(tally.summary(true).contains("pods checked: 2, "), "{}", tally.summary(true));
    }

    #[tokio::test]
    async fn a_first_page_that_is_refused_is_an_error() {
        let client = api_server::client(|_| Some(failure(StatusCode::GONE, "Expired")));
        let targets = TargetPods::new(&client, None, Vec::new());
        let released = release_all(&targets, &dry_run(&client), &mut ReleaseTally::quiet()).await;
        assert!(released.unwrap_err().to_string().contains("list pods"));
    }

    #[tokio::test]
    async fn a_named_pod_that_does_not_exist_is_a_failure() {
        let client = api_server::client(|request| {
            Some(match request.uri().path() {
                "/api/v1/namespaces/shop/pods/web-0" => {
                    json_answer(&json!({"metadata": {"namespace": "shop", "name": "web-0", "uid": "u"}}))
                }
                _ => failure(StatusCode::NOT_FOUND, "NotFound"),
            })
        });
        for (names, has_failed) in [(vec!["web-0"], false), (vec!["web-0", "web-O"], true)] {
            let names = names.into_iter().map(str::to_owned).collect();
            let targets = TargetPods::new(&client, Some("shop".to_owned()), names);
            let mut tally = ReleaseTally::quiet();
            release_all(&targets, &dry_run(&client), &mut tally).await.unwrap();
            assert_eq!(tally.has_failed(), has_failed);
        }
    }
}
