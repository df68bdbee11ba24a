//! Deletes and evictions: which are let through, and what is answered to the others.
//!
//! All judgement is [`podward_core::hold`]. Here its facts are got together, wishes are handed on to be recorded, and callers are
//! told. A verdict that the review and memory suffice for is given at once; so is the answer to a caller who comes again, for whom
//! the wish stands on the pod already.

mod cluster;
mod controller;
mod events;
mod metrics;
mod recorder;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kube::Client;
use podward_core::hold::{DeletionRequest, Facts, Outcome, Verdict, answer, hold};
use podward_core::wish::{DeletionKind, Wish};
use podward_core::{Pod, UnixNanos};
use podward_runtime::Setup;
use podward_runtime::admission::{AdmissionRequest, AdmissionResponse, Decision, DeleteOptions};

pub use self::controller::{Controller, ControllerArgs};
pub use self::recorder::Recorder;

use self::cluster::{Cluster, Surroundings, is_name};
use self::events::Events;
use self::metrics::{Held, Metrics};
use self::recorder::{Recorded, record};
use self::wait::Patience;
use crate::subject::Subject;

/// It deletes what is in a namespace only when the namespace is being deleted.
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// How deletes and evictions are held.
#[derive(Clone, Copy, Debug)]
pub struct HoldOptions {
    /// For how long a node must not have been Ready until its pods are given up.
    pub unreachable_limit: Duration,
    /// How long a delete may wait for its pod to be let go of before it is answered.
    pub wait: Duration,
}

/// Holds deletes and evictions. Clones are the same one.
#[derive(Clone)]
pub struct Holding {
    inner: Arc<Inner>,
}

struct Inner {
    options: HoldOptions,
    cluster: Cluster,
    recorder: Box<dyn Recorder>,
    events: Events,
    metrics: Metrics,
    patience: Patience,
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { options, cluster, .. } = self.inner.as_ref();
        f.debug_struct("Holding").field("options", options).field("cluster", cluster).finish_non_exhaustive()
    }
}

/// A delete or an eviction of a pod.
#[derive(Clone, Copy)]
struct Asked<'a> {
    kind: DeletionKind,
    user: &'a str,
    namespace: &'a str,
    dry_run: bool,
    grace: Option<u32>,
}

impl Holding {
    /// Follows the cluster behind `client`, and has wishes recorded by `recorder`. The process is ready once nodes and namespaces are
    /// listed.
    #[must_use]
    pub fn new(options: HoldOptions, client: Client, recorder: impl Recorder, setup: &mut Setup) -> Self {
        let metrics = Metrics::default();
        metrics.register(&mut setup.registry);
        Self {
            inner: Arc::new(Inner {
                options,
                events: Events::new(client.clone(), metrics.clone()),
                cluster: Cluster::follow(client, setup),
                recorder: Box::new(recorder),
                metrics,
                patience: Patience::new(options.wait, setup.stop.clone()),
            }),
        }
    }

    /// Judges a DELETE of a pod, which comes with the pod as it is stored.
    pub(crate) fn delete<'a>(&'a self, request: &'a AdmissionRequest<'a, Subject>) -> Decision<'a> {
        let Some(Subject { pod, .. }) = &request.old_object else {
            return AdmissionResponse::bad_request("a review of DELETE without an old object".to_owned())
                .into();
        };
        self.inner.judge(pod, Asked::new(DeletionKind::Delete, request, request.dry_run, &request.options))
    }

    /// Judges an eviction, which comes without the pod. Asking the API server for it is what tells whether it is any of our
    /// business.
    pub(crate) fn evict<'a>(&'a self, request: &'a AdmissionRequest<'a, Subject>) -> Decision<'a> {
        let Some(Subject { delete_options: options, .. }) = &request.object else {
            return AdmissionResponse::bad_request("a review of an eviction without an object".to_owned())
                .into();
        };
        // The review tells of the query's dry run; the one in the body is for us to see.
        let dry_run = request.dry_run || options.dry_run.as_ref().is_some_and(|runs| !runs.is_empty());
        if dry_run || !is_name(&request.name) || !is_name(&request.namespace) {
            // Nothing comes of either; the API server has words for the second.
            return AdmissionResponse::allow().into();
        }
        let asked = Asked::new(DeletionKind::Evict, request, dry_run, options);
        Decision::later(move |deadline| self.inner.look_and_judge(&request.name, asked, deadline))
    }
}

impl<'a> Asked<'a> {
    fn new(
        kind: DeletionKind,
        request: &'a AdmissionRequest<'a, Subject>,
        dry_run: bool,
        options: &DeleteOptions,
    ) -> Self {
        Self {
            kind,
            user: &request.user_info.username,
            namespace: &request.namespace,
            dry_run,
            // The API server takes a negative one for 1 (apiserver/pkg/registry/rest/delete.go).
            grace: options.grace_period_seconds.map(|seconds| u32::try_from(seconds).unwrap_or(1)),
        }
    }

    fn request(&self) -> DeletionRequest<'a> {
        DeletionRequest { kind: self.kind, user: self.user, dry_run: self.dry_run }
    }

    fn wish(&self) -> Wish {
        Wish { grace_period_seconds: self.grace, ..Wish::new(self.kind, self.user, now()) }
    }

    /// Whether `wish`, which stands on the pod, would stay as it is if this were recorded too. One that the pod's workload made for
    /// itself is taken back when its numbers say so, so it stands for nobody else's delete.
    fn is_covered_by(&self, wish: &Wish) -> bool {
        let again = wish.by_workload && wish.requested_by == self.user;
        again || wish.joined_by(&self.wish()).is_none()
    }
}

impl Inner {
    fn judge<'a>(&'a self, pod: &'a Pod, asked: Asked<'a>) -> Decision<'a> {
        let mut known = self.cluster.recall(pod, asked.namespace);
        if asked.user == NAMESPACE_CONTROLLER && known.namespace_terminating == Some(false) {
            // It knows better than our watch, which is a moment behind.
            known.namespace_terminating = None;
        }
        if let Some(response) = self.verdict(pod, asked, known) {
            return response.into();
        }
        if let Surroundings { node: Some(_), namespace_terminating: Some(_) } = known
            && !self.patience.is_for(asked)
            && let Some(wish) = pod.wish().filter(|wish| asked.is_covered_by(wish))
        {
            return self.held(pod, asked, Held::Known, Outcome::Recorded(&wish)).into();
        }
        Decision::later(move |deadline| self.look_around_and_hold(pod, asked, known, deadline))
    }

    async fn look_and_judge(&self, name: &str, asked: Asked<'_>, deadline: Instant) -> AdmissionResponse {
        match self.cluster.pod(asked.namespace, name, deadline).await {
            Ok(Some(pod)) => match self.judge(&pod, asked) {
                Decision::Now(response) => response,
                Decision::Later(later) => later.make(deadline).await,
            },
            Ok(None) => {
                self.metrics.gone(asked.kind);
                AdmissionResponse::allow()
            }
            Err(error) => {
                self.metrics.held(asked.kind, Held::Unseen);
                AdmissionResponse::try_again(format!(
                    "Podward could not look up pod {}/{name}, so it can't tell whether the pod may be evicted: {error}; nothing was \
                     changed, try again",
                    asked.namespace
                ))
            }
        }
    }

    async fn look_around_and_hold(
        &self,
        pod: &Pod,
        asked: Asked<'_>,
        known: Surroundings,
        deadline: Instant,
    ) -> AdmissionResponse {
        let known = self.cluster.complete(known, pod, asked.namespace, deadline).await;
        if let Some(response) = self.verdict(pod, asked, known) {
            return response;
        }
        let (held, recorded) = match pod.wish().filter(|wish| asked.is_covered_by(wish)) {
            Some(wish) => (Held::Known, Recorded::Yes(wish)),
            None => {
                let start = Instant::now();
                let recorded = record(self.recorder.as_ref(), pod, asked.wish(), deadline).await;
                let (held, failure) = match &recorded {
                    Recorded::Yes(_) => (Held::Recorded, None),
                    Recorded::Refused(_) => (Held::Refused, None),
                    Recorded::Failed { code, .. } => (Held::Unrecorded, Some(*code)),
                };
                self.metrics.called(start.elapsed(), failure);
                (held, recorded)
            }
        };
        match &recorded {
            Recorded::Yes(wish) => {
                if self.patience.is_for(asked)
                    && let Some(response) = self.wait(pod, asked, known, deadline).await
                {
                    return response;
                }
                self.held(pod, asked, held, Outcome::Recorded(wish))
            }
            Recorded::Refused(why) => self.held(pod, asked, held, Outcome::Refused(why)),
            Recorded::Failed { why, .. } => self.held(pod, asked, held, Outcome::Failed(why)),
        }
    }

    /// The answer to a delete or an eviction that is let through, with what goes on record about it.
    fn verdict(&self, pod: &Pod, asked: Asked<'_>, known: Surroundings) -> Option<AdmissionResponse> {
        let facts = Facts {
            now: now(),
            node: known.node.unwrap_or_default(),
            unreachable_limit: self.options.unreachable_limit,
            namespace_terminating: known.namespace_terminating.unwrap_or_default(),
        };
        let Verdict::Allow { reason, words } = hold(pod, &asked.request(), &facts) else { return None };
        self.metrics.let_through(asked.kind, reason);
        if !reason.is_on_record() {
            return Some(AdmissionResponse::allow());
        }
        self.events.not_held(pod, asked.namespace, reason, &words);
        let mut response = AdmissionResponse::allow();
        response.audit_annotations.insert("not-held", words.clone());
        Some(response.warn([words]))
    }

    fn held(&self, pod: &Pod, asked: Asked<'_>, held: Held, outcome: Outcome<'_>) -> AdmissionResponse {
        self.metrics.held(asked.kind, held);
        // Callers come again every few seconds; the log has it from when the wish was recorded.
        let is_repeated = held == Held::Known;
        AdmissionResponse { is_repeated, ..AdmissionResponse::try_again(answer(pod, asked.kind, outcome)) }
    }
}

/// The present. A clock before 1970 reads as 1970: nothing is let through by it.
fn now() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
