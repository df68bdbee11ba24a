//! Writes what is known of each hook into the status of its LifecycleHook: at once when it is accepted or reachable
//! where it was not, or the other way round; other figures seldom; and nothing that stands there already.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use podward_api::{HookStatus, LifecycleHook};
use podward_runtime::retry::api_call;
use serde_json::{Value, json};

use crate::kubernetes::conditions::{has_other_condition, wanted_status};
use crate::questions::table::HookHealth;
use crate::registration::record::HookRecord;
use crate::shared::HookCallsState;

/// The minimum time between two writes for one hook when its figures change.
const FIGURES_INTERVAL: Duration = Duration::from_secs(10);
/// The minimum time between two writes for one hook when its conditions change. It limits the writes for a hook that is
/// often unreachable. The first write for a new hook waits this long for the result of the first connection.
const CONDITIONS_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 4;

/// Writes the status of hooks while it is polled.
pub(crate) async fn write(shared: Arc<HookCallsState>, client: Client) {
    let mut writer = StatusWriter {
        api: Api::all(client),
        shared,
        written: HashMap::new(),
        planned: BTreeSet::new(),
        running: FuturesUnordered::new(),
    };
    loop {
        let now = Instant::now();
        let due = writer.planned.first().map(|(at, _)| *at);
        let has_room = writer.running.len() < MAX_CONCURRENT_WRITES;
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

/// The result of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusWriteOutcome {
    Written,
    /// Another writer changed the hook, or the hook was replaced. The current status is written next.
    Stale,
}

struct StatusWriter {
    shared: Arc<HookCallsState>,
    api: Api<LifecycleHook>,
    written: HashMap<String, Written>,
    planned: BTreeSet<(Instant, String)>,
    running: FuturesUnordered<BoxFuture<'static, (String, Result<StatusWriteOutcome, String>)>>,
}

/// The last status write of a hook.
struct Written {
    uid: String,
    /// The time of the write; for a new hook, the time when it was first seen.
    at: Instant,
    /// The time of the last check that found nothing to write.
    looked: Option<Instant>,
    /// The written status; `None` if the status from the watch is newer.
    status: Option<HookStatus>,
    running: bool,
    failed: bool,
    planned: Option<Instant>,
}

impl StatusWriter {
    /// Writes the status of a hook if it has changed, now or after the minimum time.
    fn consider(&mut self, name: &str, now: Instant) {
        let shared = self.shared.clone();
        let directory = shared.directory.read();
        let Some(record) = directory.record(name) else {
            self.written.remove(name);
            return;
        };
        let health = shared.table.lock().health(name);
        let is_same = |written: &Written| written.uid == record.uid;
        if !self.written.get(name).is_some_and(is_same) {
            self.written.insert(name.to_owned(), Written::new(&record.uid, record, health.as_ref(), now));
        }
        let Some(written) = self.written.get(name) else { return };
        let present = written.status.as_ref().unwrap_or(&record.status);
        let pause = if has_other_condition(record, present, health.as_ref()) {
            CONDITIONS_INTERVAL
        } else {
            FIGURES_INTERVAL
        };
        let earliest = match written {
            Written { running: true, .. } => now + CONDITIONS_INTERVAL,
            Written { failed: true, at, .. } => *at + FIGURES_INTERVAL,
            Written { at, looked, .. } => {
                looked.map_or(*at + pause, |looked| (*at + pause).max(looked + CONDITIONS_INTERVAL))
            }
        };
        if earliest > now {
            return self.plan(name, earliest);
        }
        let (record, present) = (record.clone(), present.clone());
        // Released, because `matches_no_pod` takes the lock again.
        drop(directory);
        let matches_no_pod = shared.matches_no_pod(name);
        let wanted = wanted_status(&record, &present, health.as_ref(), matches_no_pod, Timestamp::now());
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

    /// Plans a check. One plan per hook is enough, because the check uses the state of that time.
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
        // The hook may have been replaced by one of the same name, with another plan.
        if let Some(written) = self.written.get_mut(&name)
            && written.planned == Some(at)
        {
            written.planned = None;
            self.consider(&name, Instant::now());
        }
    }

    fn done(&mut self, name: &str, result: Result<StatusWriteOutcome, String>) {
        let Some(written) = self.written.get_mut(name) else { return };
        written.running = false;
        let had_failed = std::mem::replace(&mut written.failed, result.is_err());
        let error = match result {
            Ok(StatusWriteOutcome::Written) => return,
            Ok(StatusWriteOutcome::Stale) => {
                written.status = None;
                let again = written.at + CONDITIONS_INTERVAL;
                return self.plan(name, again);
            }
            Err(error) => error,
        };
        written.status = None;
        let again = written.at + FIGURES_INTERVAL;
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
    fn new(uid: &str, record: &HookRecord, health: Option<&HookHealth>, now: Instant) -> Self {
        let is_known = health.is_some_and(|health| health.reachable.is_some());
        // If the result is known already, it is written at once.
        let at = if is_known || record.refused.is_some() {
            now.checked_sub(FIGURES_INTERVAL).unwrap_or(now)
        } else {
            now
        };
        let uid = uid.to_owned();
        Written { uid, at, looked: None, status: None, running: false, failed: false, planned: None }
    }
}

async fn patch(
    api: Api<LifecycleHook>,
    name: String,
    body: Value,
) -> (String, Result<StatusWriteOutcome, String>) {
    let params = PatchParams::default();
    let patch = Patch::Merge(&body);
    let result = match api_call(api.patch_status(&name, &params, &patch)).await {
        Ok(_) => Ok(StatusWriteOutcome::Written),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(StatusWriteOutcome::Stale),
        Err(error) => Err(error.to_string()),
    };
    (name, result)
}

/// Returns the merge patch of `status`, with `null` for missing fields. Its precondition is the resource version: in a
/// write to the status of a custom resource, the API server compares no other metadata, not even the UID (`statusStrategy`
/// in k8s.io/apiextensions-apiserver/pkg/registry/customresource).
fn body(record: &HookRecord, status: &HookStatus) -> Value {
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
