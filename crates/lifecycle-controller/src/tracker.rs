//! What the controller remembers of each pod between two looks at it. All of it may be lost at any time: it serves metrics, traces,
//! events and the patience before a condition is written, never a decision about the pod.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use podward_core::hooks::Phase as HookPhase;
use podward_core::keys::Stage;
use podward_core::{Explanation, Note, Operations, Phase, UNKNOWN_TYPE, UnixNanos};

use crate::cached_pod::{CachedPod, PodKey};
use crate::metrics::Metrics;
use crate::reconcile::now;
use crate::story::{Story, Told};
use crate::telling::{PATIENCE, Telling};
use crate::traces::Traces;
use crate::waits::Waits;

/// Events tell of phases gone through; that a pod waits is in its condition by then. So a story that goes on is told late.
const STORY_PATIENCE: Duration = Duration::from_secs(30);

/// Where one operation stood when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) operation_type: String,
    pub(crate) phase: Phase,
    /// When it entered the phase, in nanoseconds since the Unix epoch, by the label's value; `None` if that isn't a number.
    since: Option<i64>,
}

impl Standing {
    fn enter(&self, metrics: &Metrics) {
        metrics.entered(&self.operation_type, self.phase, self.since);
    }
}

/// What makes a note another one: hook, phase, since when, kind.
type NoteKey = (String, HookPhase, UnixNanos, &'static str);

#[derive(Debug)]
struct Tracked {
    uid: String,
    operations: BTreeMap<String, Standing>,
    service_available: bool,
    story: Story,
    telling: Telling,
    notes: BTreeSet<NoteKey>,
    waits: Waits,
    /// What was wrong with its annotations when it was last seen.
    fault: Option<String>,
    services: ServiceCheck,
    failures: u32,
}

/// Whether the Services that a pod waits for are to be looked at.
#[derive(Clone, Copy, Debug)]
enum ServiceCheck {
    NotNeeded,
    From(Instant),
    Done,
}

/// One entry a pod.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    pods: Mutex<HashMap<PodKey, Tracked>>,
    traces: Traces,
}

impl Tracker {
    pub(crate) fn new(traces: Traces) -> Self {
        Tracker { traces, ..Tracker::default() }
    }

    /// Takes note of a version of a pod: what has changed since the last one goes to metrics and into the pod's story.
    pub(crate) fn observe(&self, pod: &CachedPod, metrics: &Metrics) {
        let view = pod.view();
        let operations = Operations::parse(view.labels);
        let present = standings(view.labels, &operations);
        let mut pods = self.pods.lock();
        let key = pod.key();
        let same_pod = pods.get(&key).is_some_and(|tracked| tracked.uid == pod.uid());
        self.traces.observe(pod, &operations, same_pod, now());
        if !same_pod {
            if let Some(replaced) = pods.remove(&key) {
                leave_all(&replaced, metrics);
                self.traces.gone(&replaced.uid);
            }
            present.values().for_each(|standing| standing.enter(metrics));
            pods.insert(key, Tracked::new(pod.uid(), present, operations.is_service_available()));
            return;
        }
        let Some(tracked) = pods.get_mut(&key) else { return };
        for (id, was) in &tracked.operations {
            let is = present.get(id);
            if is != Some(was) {
                let left_at = is.map_or_else(|| Some(now().0), |is| is.since);
                metrics.left(&was.operation_type, was.phase, was.since, left_at);
                if is.is_none() {
                    tracked.story.ended(id, was);
                }
            }
        }
        for (id, is) in &present {
            if tracked.operations.get(id) != Some(is) {
                is.enter(metrics);
                tracked.story.entered(id, is);
            }
        }
        if operations.is_service_available() && !tracked.service_available {
            tracked.story.became_available();
        }
        tracked.operations = present;
        tracked.service_available = operations.is_service_available();
    }

    /// The event that tells the pod's story so far, once the story has come to a rest or has been going on for too long.
    pub(crate) fn due_event(&self, pod: &CachedPod) -> Told {
        let mut pods = self.pods.lock();
        let Some(tracked) = pods.get_mut(&pod.key()) else { return Told::Nothing };
        let is_over = tracked.operations.is_empty() && tracked.service_available;
        let patience = if is_over { Duration::ZERO } else { STORY_PATIENCE };
        tracked.story.tell(patience)
    }

    /// How long the pod must go on waiting for what `explanation` says before that is written down by itself; zero when it is
    /// time, `None` when there is nothing to write.
    pub(crate) fn time_to_tell(&self, pod: &CachedPod, explanation: &Explanation) -> Option<Duration> {
        let mut pods = self.pods.lock();
        let tracked = pods.get_mut(&pod.key())?;
        let wait = (explanation.status, explanation.reason);
        if pod.tells(explanation) {
            tracked.telling.is_told(wait);
            return None;
        }
        Some(tracked.telling.due(wait, pod.tells_of(explanation), Instant::now()))
    }

    /// The condition was written for its own sake.
    pub(crate) fn told(&self, key: &PodKey) {
        if let Some(tracked) = self.pods.lock().get_mut(key) {
            tracked.telling.told(Instant::now());
        }
    }

    /// Those of `notes` that weren't told yet. What isn't among them any more is forgotten.
    pub(crate) fn news<'n>(&self, key: &PodKey, notes: &'n [Note]) -> Vec<&'n Note> {
        let mut pods = self.pods.lock();
        let Some(tracked) = pods.get_mut(key) else { return Vec::new() };
        let key_of = |note: &Note| (note.hook.clone(), note.phase, note.since, note.event.as_str());
        let told = std::mem::take(&mut tracked.notes);
        tracked.notes = notes.iter().map(key_of).collect();
        notes.iter().filter(|note| !told.contains(&key_of(note))).collect()
    }

    /// What `follow` makes of the waits of a pod; `None` when the pod isn't known.
    pub(crate) fn waits<T>(
        &self,
        key: &PodKey,
        metrics: &Metrics,
        follow: impl FnOnce(&mut Waits) -> T,
    ) -> Option<T> {
        let mut pods = self.pods.lock();
        let tracked = pods.get_mut(key)?;
        let before = tracked.waits.are_for_work();
        let followed = follow(&mut tracked.waits);
        match (before, tracked.waits.are_for_work()) {
            (false, true) => drop(metrics.busy_waiting.inc()),
            (true, false) => drop(metrics.busy_waiting.dec()),
            _ => {}
        }
        Some(followed)
    }

    /// Whether `fault`, something that is wrong with the pod's annotations, is another one than when it was last asked.
    pub(crate) fn is_new_fault(&self, key: &PodKey, fault: Option<&str>) -> bool {
        let mut pods = self.pods.lock();
        let Some(tracked) = pods.get_mut(key).filter(|tracked| tracked.fault.as_deref() != fault) else {
            return false;
        };
        tracked.fault = fault.map(ToOwned::to_owned);
        fault.is_some()
    }

    /// When somebody should look whether the Services that `pod` waits for still exist: a while after the wait began, once, and
    /// again when such a Service has changed. `None` when there is nothing to look at, or it was looked at.
    pub(crate) fn service_check_due(&self, pod: &CachedPod, waits: bool) -> Option<Instant> {
        let mut pods = self.pods.lock();
        let tracked = pods.get_mut(&pod.key())?;
        if !waits {
            tracked.services = ServiceCheck::NotNeeded;
            return None;
        }
        if let ServiceCheck::NotNeeded = tracked.services {
            tracked.services = ServiceCheck::From(Instant::now() + PATIENCE);
        }
        match tracked.services {
            ServiceCheck::From(due) => Some(due),
            _ => None,
        }
    }

    /// The look that was due then is done. If another one has become due meanwhile, that stands.
    pub(crate) fn checked_services(&self, key: &PodKey, due: Instant) {
        if let Some(tracked) = self.pods.lock().get_mut(key)
            && matches!(tracked.services, ServiceCheck::From(now_due) if now_due == due)
        {
            tracked.services = ServiceCheck::Done;
        }
    }

    /// A Service that the pod names has changed: it is worth a look now.
    pub(crate) fn renew_service_check(&self, key: &PodKey) {
        if let Some(tracked) = self.pods.lock().get_mut(key) {
            tracked.services = ServiceCheck::From(Instant::now());
        }
    }

    /// Counts a failure; gives how many there were in a row.
    pub(crate) fn failed(&self, key: &PodKey) -> u32 {
        self.pods.lock().get_mut(key).map_or(1, |tracked| {
            tracked.failures = tracked.failures.saturating_add(1);
            tracked.failures
        })
    }

    pub(crate) fn succeeded(&self, key: &PodKey) {
        if let Some(tracked) = self.pods.lock().get_mut(key) {
            tracked.failures = 0;
        }
    }

    /// Forgets pods that are not there any more.
    ///
    /// Gives their keys and UIDs.
    pub(crate) fn retain(
        &self,
        metrics: &Metrics,
        exists: impl Fn(&PodKey) -> bool,
    ) -> Vec<(PodKey, String)> {
        let mut gone = Vec::new();
        self.pods.lock().retain(|key, tracked| {
            let keep = exists(key);
            if !keep {
                leave_all(tracked, metrics);
                self.traces.gone(&tracked.uid);
                gone.push((key.clone(), tracked.uid.clone()));
            }
            keep
        });
        gone
    }
}

impl Tracked {
    fn new(uid: &str, operations: BTreeMap<String, Standing>, service_available: bool) -> Self {
        Tracked {
            uid: uid.to_owned(),
            operations,
            service_available,
            story: Story::default(),
            telling: Telling::default(),
            notes: BTreeSet::new(),
            waits: Waits::default(),
            fault: None,
            services: ServiceCheck::NotNeeded,
            failures: 0,
        }
    }
}

fn leave_all(tracked: &Tracked, metrics: &Metrics) {
    if tracked.waits.are_for_work() {
        metrics.busy_waiting.dec();
    }
    for standing in tracked.operations.values() {
        metrics.left(&standing.operation_type, standing.phase, standing.since, None);
    }
}

fn standings(labels: &BTreeMap<String, String>, operations: &Operations<'_>) -> BTreeMap<String, Standing> {
    operations
        .iter()
        .filter_map(|(id, operation)| {
            let phase = Phase::of(operation)?;
            let operation_type =
                operations.type_of(id).map_or_else(|| UNKNOWN_TYPE.to_owned(), |known| known.into_owned());
            Some((id.to_owned(), Standing { operation_type, phase, since: since(labels, id, phase) }))
        })
        .collect()
}

/// When the phase began, by the value of the label that began it.
fn since(labels: &BTreeMap<String, String>, id: &str, phase: Phase) -> Option<i64> {
    let stage = match phase {
        Phase::PreChecking => Stage::PreCheck,
        Phase::Preparing => Stage::Preparing,
        Phase::Operating => Stage::Operate,
        Phase::PostChecking => Stage::Operated,
        Phase::Completing => Stage::Completing,
        _ => return None,
    };
    labels.get(&stage.key(id))?.parse().ok()
}

#[cfg(test)]
impl Standing {
    pub(crate) fn at(operation_type: &str, phase: Phase) -> Self {
        Standing { operation_type: operation_type.to_owned(), phase, since: None }
    }
}
