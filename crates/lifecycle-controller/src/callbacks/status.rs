//! Writes what is known of each hook into the status of its LifecycleHook: at once when it is accepted or reachable where it was not,
//! or the other way round; other figures seldom; and nothing that stands there already.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use podward_api::{HookStatus, LifecycleHook};
use serde_json::{Value, json};

use super::Shared;
use super::board::Standing;
use super::registered::{Connection, Record};

/// Between two writes about one hook, when its figures change.
const SELDOM: Duration = Duration::from_secs(10);
/// The same when its conditions do: enough for a hook that comes and goes not to be heard of all the time. A new hook's first write
/// waits for so long until it is known whether it can be reached.
const SOON: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(10);
/// Writes at the same time.
const AT_ONCE: usize = 4;

const ACCEPTED: &str = "Accepted";
const REACHABLE: &str = "Reachable";

/// Writes for as long as it is polled.
pub(super) async fn write(shared: Arc<Shared>, client: Client) {
    let mut writer = Writer {
        api: Api::all(client),
        shared,
        written: HashMap::new(),
        planned: BTreeSet::new(),
        running: FuturesUnordered::new(),
    };
    loop {
        let now = Instant::now();
        let due = writer.planned.first().map(|(at, _)| *at);
        let has_room = writer.running.len() < AT_ONCE;
        tokio::select! {
            Some((name, result)) = writer.running.next(), if !writer.running.is_empty() => {
                writer.done(&name, result);
            }
            name = writer.shared.hooks.next(), if has_room => match name {
                Some(name) => writer.consider(&name, now),
                None => return,
            },
            () = sleep_until(due), if has_room && due.is_some() => {
                writer.planned();
            }
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due.into()).await;
    }
}

/// What became of a write that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Written,
    /// Somebody else wrote first, or it is another object by now: what is so then is written.
    Stale,
}

struct Writer {
    shared: Arc<Shared>,
    api: Api<LifecycleHook>,
    written: HashMap<String, Written>,
    planned: BTreeSet<(Instant, String)>,
    running: FuturesUnordered<BoxFuture<'static, (String, Result<Outcome, String>)>>,
}

/// What was last written about a hook.
struct Written {
    uid: String,
    /// When; for a new hook, when it was first seen.
    at: Instant,
    /// When it was last found that there is nothing to write.
    looked: Option<Instant>,
    /// What stands there; `None` when that is what the watch says.
    status: Option<HookStatus>,
    running: bool,
    failed: bool,
    planned: Option<Instant>,
}

impl Writer {
    /// Looks whether anything is to be written about a hook; now, or when it is time.
    fn consider(&mut self, name: &str, now: Instant) {
        let shared = self.shared.clone();
        let directory = shared.directory.read();
        let Some(record) = directory.record(name) else {
            self.written.remove(name);
            return;
        };
        let standing = shared.board.lock().standing(name);
        let is_same = |written: &Written| written.uid == record.uid;
        if !self.written.get(name).is_some_and(is_same) {
            self.written.insert(name.to_owned(), Written::new(&record.uid, record, standing.as_ref(), now));
        }
        let Some(written) = self.written.get(name) else { return };
        let present = written.status.as_ref().unwrap_or(&record.status);
        let pause = if stands_otherwise(record, present, standing.as_ref()) { SOON } else { SELDOM };
        let earliest = match written {
            Written { running: true, .. } => now + SOON,
            Written { failed: true, at, .. } => *at + SELDOM,
            Written { at, looked, .. } => {
                looked.map_or(*at + pause, |looked| (*at + pause).max(looked + SOON))
            }
        };
        if earliest > now {
            return self.plan(name, earliest);
        }
        let (record, present) = (record.clone(), present.clone());
        // Not held any longer: to see whether it is for anybody the lock is taken again.
        drop(directory);
        let for_nobody = shared.is_for_nobody(name);
        let wanted = status(&record, &present, standing.as_ref(), for_nobody, Timestamp::now());
        let is_so = wanted == present;
        let Some(written) = self.written.get_mut(name) else { return };
        if is_so {
            written.looked = Some(now);
            return;
        }
        let body = body(&record, &wanted);
        (written.at, written.looked, written.status, written.running) = (now, None, Some(wanted), true);
        self.running.push(patch(self.api.clone(), name.to_owned(), body).boxed());
    }

    /// One plan for each hook is enough: when it is carried out, what is so then is looked at.
    fn plan(&mut self, name: &str, at: Instant) {
        let Some(written) = self.written.get_mut(name) else { return };
        match written.planned {
            Some(planned) if planned <= at => return,
            Some(later) => drop(self.planned.remove(&(later, name.to_owned()))),
            None => {}
        }
        written.planned = Some(at);
        self.planned.insert((at, name.to_owned()));
    }

    fn planned(&mut self) {
        let Some((at, name)) = self.planned.pop_first() else { return };
        // A hook of the same name may have come since, with a plan of its own.
        if let Some(written) = self.written.get_mut(&name)
            && written.planned == Some(at)
        {
            written.planned = None;
            self.consider(&name, Instant::now());
        }
    }

    fn done(&mut self, name: &str, result: Result<Outcome, String>) {
        let Some(written) = self.written.get_mut(name) else { return };
        written.running = false;
        let had_failed = std::mem::replace(&mut written.failed, result.is_err());
        let error = match result {
            Ok(Outcome::Written) => return,
            Ok(Outcome::Stale) => {
                written.status = None;
                let again = written.at + SOON;
                return self.plan(name, again);
            }
            Err(error) => error,
        };
        written.status = None;
        let again = written.at + SELDOM;
        if had_failed {
            tracing::debug!(hook = name, error, "status of a LifecycleHook");
        } else {
            tracing::warn!(
                hook = name,
                error,
                "could not write the status of a LifecycleHook; it is tried again"
            );
        }
        self.plan(name, again);
    }
}

impl Written {
    fn new(uid: &str, record: &Record, standing: Option<&Standing>, now: Instant) -> Self {
        let is_known = standing.is_some_and(|standing| standing.reachable.is_some());
        // Nothing holds up what is known already.
        let at =
            if is_known || record.refused.is_some() { now.checked_sub(SELDOM).unwrap_or(now) } else { now };
        let uid = uid.to_owned();
        Written { uid, at, looked: None, status: None, running: false, failed: false, planned: None }
    }
}

/// Whether a condition has another status than stands there. That nobody knows it yet is not worth a write of its own.
fn stands_otherwise(record: &Record, present: &HookStatus, standing: Option<&Standing>) -> bool {
    let wanted = [Some(accepted(record, None)), reachability(record, standing, is_new(record, present))];
    wanted.into_iter().flatten().filter(|(_, status, ..)| *status != "Unknown").any(|(type_, status, ..)| {
        !present.conditions.iter().any(|condition| condition.type_ == type_ && condition.status == status)
    })
}

fn is_new(record: &Record, present: &HookStatus) -> bool {
    present.observed_generation != record.generation
}

async fn patch(api: Api<LifecycleHook>, name: String, body: Value) -> (String, Result<Outcome, String>) {
    let params = PatchParams::default();
    let patch = Patch::Merge(&body);
    let write = tokio::time::timeout(DEADLINE, api.patch_status(&name, &params, &patch));
    let result = match write.await {
        Ok(Ok(_)) => Ok(Outcome::Written),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(Outcome::Stale),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer from the API server within {DEADLINE:?}")),
    };
    (name, result)
}

/// A merge patch: what is not there any more has to be said. Its precondition is the resource version: of the metadata that comes with
/// a status the API server heeds only that (a UID is not compared, as it is for pods; `statusStrategy` in
/// k8s.io/apiextensions-apiserver/pkg/registry/customresource).
fn body(record: &Record, status: &HookStatus) -> Value {
    let mut fields = json!({
        "conditions": [], "lastAnswerTime": null, "lastError": null,
        "latencyP50Milliseconds": null, "latencyP99Milliseconds": null, "observedGeneration": null,
    });
    if let (Some(fields), Ok(Value::Object(present))) = (fields.as_object_mut(), serde_json::to_value(status))
    {
        fields.extend(present);
    }
    json!({ "metadata": { "resourceVersion": record.resource_version }, "status": fields })
}

/// What the status is to be, where `present` stands. What is not known (yet) stays as an earlier leader wrote it.
fn status(
    record: &Record,
    present: &HookStatus,
    standing: Option<&Standing>,
    for_nobody: Option<bool>,
    now: Timestamp,
) -> HookStatus {
    let reachable = standing.and_then(|standing| standing.reachable);
    let mut conditions: Vec<Condition> = Vec::new();
    for wanted in
        [Some(accepted(record, for_nobody)), reachability(record, standing, is_new(record, present))]
            .into_iter()
            .flatten()
    {
        let (type_, status, reason, message) = wanted;
        let before = present.conditions.iter().find(|condition| condition.type_ == type_);
        let since =
            before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
        conditions.push(Condition {
            last_transition_time: since.unwrap_or_else(|| Time(whole_seconds(now))),
            message,
            observed_generation: record.generation,
            reason: reason.to_owned(),
            status: status.to_owned(),
            type_: type_.to_owned(),
        });
    }
    let others = present
        .conditions
        .iter()
        .filter(|condition| !conditions.iter().any(|ours| ours.type_ == condition.type_));
    let others: Vec<Condition> = others.cloned().collect();
    conditions.extend(others);
    let latencies = standing.and_then(|standing| standing.latencies);
    let last_answer = standing.and_then(|standing| standing.last_answer);
    HookStatus {
        observed_generation: record.generation,
        conditions,
        last_answer_time: last_answer
            .map(|time| Time(whole_seconds(time)))
            .or_else(|| present.last_answer_time.clone()),
        calls_in_flight: standing
            .map_or(0, |standing| u32::try_from(standing.calls_in_flight).unwrap_or(u32::MAX)),
        latency_p50_milliseconds: latencies.map(|(p50, _)| p50).or(present.latency_p50_milliseconds),
        latency_p99_milliseconds: latencies.map(|(_, p99)| p99).or(present.latency_p99_milliseconds),
        last_error: match reachable {
            Some(_) => standing.and_then(|standing| standing.last_error.clone()),
            None => present.last_error.clone(),
        },
    }
}

type Wanted = (&'static str, &'static str, &'static str, String);

fn accepted(record: &Record, for_nobody: Option<bool>) -> Wanted {
    match (&record.refused, for_nobody) {
        (Some(problem), _) => (ACCEPTED, "False", "Invalid", problem.clone()),
        (None, Some(true)) => {
            let message = "it is valid, but is for no pod now: no pod that has opted in matches spec.podSelector in a namespace \
                           that matches spec.namespaceSelector";
            (ACCEPTED, "True", "MatchesNoPod", message.to_owned())
        }
        (None, _) => (ACCEPTED, "True", "Valid", String::new()),
    }
}

fn reachability(record: &Record, standing: Option<&Standing>, is_new: bool) -> Option<Wanted> {
    if let Connection::Invalid(_) = record.registered.connection {
        let message = "it is not asked, as it is not valid";
        return Some((REACHABLE, "False", "NotAsked", message.to_owned()));
    }
    let error = || standing.and_then(|standing| standing.last_error.clone()).unwrap_or_default();
    match standing.and_then(|standing| standing.reachable) {
        Some(true) => Some((REACHABLE, "True", "Reached", String::new())),
        Some(false) => Some((REACHABLE, "False", "NotReached", error())),
        // Nobody has tried: what an earlier leader found stays, if it was about the same hook.
        None if is_new || record.condition(REACHABLE).is_none() => {
            Some((REACHABLE, "Unknown", "NotTried", "it is being connected to".to_owned()))
        }
        None => None,
    }
}

/// `metav1.Time` has whole seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
