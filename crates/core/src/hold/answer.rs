//! What a caller is told whose delete or eviction is held: the text of the 429 answer.

use crate::busy::Claim;
use crate::gate::gate_is_off;
use crate::keys::{DELETE_OPERATION, SERVICE_READY_GATE, Stage, TO_DELETE};
use crate::operations::Operations;
use crate::pod::Pod;
use crate::time::UnixNanos;
use crate::wish::{DeletionKind, Wish};

/// What the API server says when a disruption budget has no room (kubernetes/pkg/registry/core/pod/storage/eviction.go).
pub const BUDGET_REFUSAL: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// How the reference implementation begins; clients look for it.
const UNDERWAY: &str = "pod deletion process is underway and being managed by PodOpsLifecycle";

/// By these words the descheduler knows an eviction that goes on in the background (its feature EvictionsInBackground).
const IN_BACKGROUND: &str = "Eviction triggered evacuation";

/// How a condition tells that a pod is busy ([`crate::busy::Busy::words`]).
const WAITS_FOR_WORK: &str = "busy until";

/// What came of the attempt to record the wish.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// It stands on the pod.
    Recorded(&'a Wish),
    /// It was not taken, for this reason (budget, owner's numbers): traffic goes on as before.
    Refused(&'a str),
    /// It could not be recorded, for this reason; the caller's next try will be.
    Failed(&'a str),
}

/// The message for the caller: that the pod isn't deleted yet, who holds it and since when, what comes next, and how to cancel.
/// `pod` is the pod as the webhook knows it; it may be from before the wish.
///
/// ```
/// use podward_core::Pod;
/// use podward_core::hold::{Outcome, answer};
/// use podward_core::wish::{DeletionKind, Wish};
/// use serde_json::json;
///
/// let pod: Pod = serde_json::from_value(json!({
///     "metadata": {"name": "web-0", "namespace": "shop", "finalizers": ["prot.podopslifecycle.kusionstack.io/1"]},
/// })).unwrap();
/// let wish = Wish::new(DeletionKind::Delete, "jane", podward_core::UnixNanos(1_700_000_000_000_000_000));
/// let text = answer(&pod, DeletionKind::Delete, Outcome::Recorded(&wish));
/// assert!(text.contains("prot.podopslifecycle.kusionstack.io/1") && text.contains("kubectl label pod web-0 -n shop"));
/// ```
#[must_use]
pub fn answer(pod: &Pod, kind: DeletionKind, outcome: Outcome<'_>) -> String {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    match outcome {
        Outcome::Refused(why) => why.to_owned(),
        Outcome::Failed(why) => format!(
            "pod {namespace}/{name} is held by PodOpsLifecycle, and that it is to be deleted could not be recorded: {why}; \
             nothing was changed, try again"
        ),
        Outcome::Recorded(wish) => {
            let begin = match kind {
                DeletionKind::Delete => UNDERWAY.to_owned(),
                DeletionKind::Evict => format!("{UNDERWAY}; {IN_BACKGROUND}"),
            };
            let finalizers: Vec<&str> = pod.view().protection_finalizers().collect();
            let with = if finalizers.is_empty() {
                String::new()
            } else {
                format!(" with finalizers: [{}]", finalizers.join(" "))
            };
            format!(
                "{begin}{with}; pod {namespace}/{name} is {} by itself when everybody has let go of it: {}; asked for by {} at {}; \
                 to cancel: kubectl label pod {name} -n {namespace} {TO_DELETE}-",
                match wish.kind {
                    DeletionKind::Delete => "deleted",
                    DeletionKind::Evict => "evicted",
                },
                waits_for(pod, wish),
                wish.requested_by,
                UnixNanos(wish.requested_at).to_rfc3339(),
            )
        }
    }
}

fn waits_for(pod: &Pod, wish: &Wish) -> String {
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    let begun = operations.get(DELETE_OPERATION).filter(|operation| operation.has(Stage::Operating));
    let checking = begun.is_some_and(|operation| !operation.has(Stage::PreChecked));
    if let Some(text) = busy(pod, wish).filter(|_| checking || begun.is_none()) {
        return text;
    }
    if let (true, Some(told)) = (checking, pod.told()) {
        return told.to_owned();
    }
    let since = label_time(pod, Stage::Preparing).or_else(|| pod.gate_since().filter(|_| gate_is_off(&view)));
    let since = since.unwrap_or(UnixNanos(wish.requested_at)).to_rfc3339();
    let holders = holders(pod);
    match (gate_is_off(&view), holders.is_empty()) {
        (true, true) => "nobody holds it any more".to_owned(),
        (true, false) => format!("waits since {since} for {}", holders.join(", ")),
        (false, true) => format!("waits since {since} for {SERVICE_READY_GATE} to turn False"),
        (false, false) => {
            format!(
                "waits since {since} for {SERVICE_READY_GATE} to turn False and for {}",
                holders.join(", ")
            )
        }
    }
}

/// That the pod is busy, by its own word, which is newer than the condition's. Where the condition tells of another check of the deletion,
/// the maximum for busy pods has passed, and that check is what it waits for.
fn busy(pod: &Pod, wish: &Wish) -> Option<String> {
    let work = Claim::of(&pod.view()).at(UnixNanos(wish.requested_at))?;
    let is_about_another = |told: &str| told.contains(DELETE_OPERATION) && !told.contains(WAITS_FOR_WORK);
    if pod.told().is_some_and(is_about_another) {
        return None;
    }
    Some(format!(
        "the pod is {}, and is not interrupted before that, unless the maximum for it passes",
        work.words()
    ))
}

fn label_time(pod: &Pod, stage: Stage) -> Option<UnixNanos> {
    pod.view().labels.get(&stage.key(DELETE_OPERATION))?.parse().ok().map(UnixNanos)
}

/// Who holds the pod: by the names that the expected finalizers give them, else by the finalizer.
fn holders(pod: &Pod) -> Vec<String> {
    let view = pod.view();
    let expected = view.expected_finalizers().unwrap_or_default();
    view.protection_finalizers()
        .map(|finalizer| {
            let employer = expected.missing(&[]).find(|(_, of)| *of == finalizer);
            match employer {
                Some((employer, _)) => match crate::hooks::hook_of(employer) {
                    Some(hook) => format!("hook {hook}"),
                    None => employer.to_owned(),
                },
                None => format!("the owner of {finalizer}"),
            }
        })
        .collect()
}
