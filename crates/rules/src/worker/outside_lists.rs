//! The lists of pods that are not opted in, for the decisions about one namespace. A list may take seconds, so it runs
//! beside the decisions, and those that need none do not wait for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use podward_kube_util::CachedPod;
use podward_runtime::retry::{API_SERVER, delay_after};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::super::context::RuleContext;
use super::outside_pods::OwnerToList;

/// Owners whose pods are listed at the same time.
const MAX_CONCURRENT_LISTS: usize = 8;
/// The longest pause after a list. Shorter lists take at most a fifth of the time.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a list counts. The worker pauses for a second after a write.
const MAX_AGE: Duration = Duration::from_secs(2);

/// The lists for one namespace. At most one runs.
#[derive(Default)]
pub(super) struct OutsideLists {
    running: Option<RunningList>,
    listed: Option<ListedPods>,
    /// The rule sets that need a list which has not begun.
    waiting: BTreeSet<String>,
    /// The time before which no list begins; `None` before the first list.
    next: Option<Instant>,
    /// In a row.
    failures: u32,
    error: Option<String>,
}

struct RunningList {
    sets: BTreeSet<String>,
    task: AbortOnDropHandle<EndedList>,
}

/// A list that has ended. That may be noticed later.
struct EndedList {
    result: Result<HashMap<String, PodsOfOwner>, String>,
    began: Instant,
    ended: Instant,
}

/// The pods that were listed, all at the same time. They count for one decision.
pub(super) struct ListedPods {
    /// The rule sets that needed the list.
    pub(super) sets: BTreeSet<String>,
    /// By UID.
    owners: HashMap<String, PodsOfOwner>,
    ended: Instant,
}

struct PodsOfOwner {
    /// The owner, with its pods that were opted in before the list.
    owner: OwnerToList,
    outside: u32,
}

/// The pods of an owner that are not opted in, by a list.
pub(super) struct OutsideCount {
    pub(super) pods: u32,
    /// True if that may be too few, because another pod has been opted in since the list began.
    pub(super) is_old: bool,
}

impl ListedPods {
    /// Returns the number for the owner with this UID, which now has the pods `existing` that are opted in; `None` if
    /// its pods were not listed.
    pub(super) fn outside(&self, owner: &str, existing: &[Arc<CachedPod>]) -> Option<OutsideCount> {
        let PodsOfOwner { owner, outside } = self.owners.get(owner)?;
        // Each of them may be a pod of the list that was opted in or replaced.
        let joined = existing.iter().filter(|pod| !owner.known.contains(pod.uid())).count();
        let pods = outside.saturating_sub(u32::try_from(joined).unwrap_or(u32::MAX));
        Some(OutsideCount { pods, is_old: pods < *outside })
    }
}

impl OutsideLists {
    /// Lists the pods of `owners` for `sets`, or notes that `sets` need a list, if one runs or none may begin yet.
    /// `listed` is the list of the decision that needs another one.
    pub(super) fn request(
        &mut self,
        context: &Arc<RuleContext>,
        namespace: &str,
        sets: BTreeSet<String>,
        owners: Vec<OwnerToList>,
        listed: Option<&ListedPods>,
    ) {
        if self.must_wait(&sets, listed) {
            return;
        }
        let (lists, namespace) = (context.clone(), namespace.to_owned());
        let list = async move {
            let began = Instant::now();
            let result = list(&lists, &namespace, owners).await;
            EndedList { result, began, ended: Instant::now() }
        };
        let task = AbortOnDropHandle::new(context.tasks.spawn(list));
        self.running = Some(RunningList { sets, task });
    }

    /// Returns true if no list may begin for `sets` now, and notes that they need one.
    fn must_wait(&mut self, sets: &BTreeSet<String>, listed: Option<&ListedPods>) -> bool {
        let is_early = self.next.is_some_and(|next| next > Instant::now());
        let must_wait = self.running.is_some() || is_early || listed.is_some();
        if must_wait {
            // A list counts once. If the rule sets were listed in turn, a pod of several would never get room.
            self.waiting.extend(listed.into_iter().flat_map(|listed| &listed.sets).chain(sets).cloned());
        }
        must_wait
    }

    /// Waits for the end of the list that runs; forever if none does.
    pub(super) async fn ended(&mut self) {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let stopped = |error: JoinError| {
            let now = Instant::now();
            EndedList { result: Err(format!("could not list pods: {error}")), began: now, ended: now }
        };
        let EndedList { result, began, ended } = (&mut running.task).await.unwrap_or_else(stopped);
        let Some(RunningList { sets, .. }) = self.running.take() else { return };
        match result {
            Ok(owners) => {
                (self.failures, self.error) = (0, None);
                self.next = Some(ended + (4 * ended.duration_since(began)).min(LONGEST_PAUSE));
                self.listed = Some(ListedPods { sets, owners, ended });
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.error = Some(error);
                self.next = Some(ended + delay_after(API_SERVER, self.failures));
                self.waiting.extend(sets);
            }
        }
    }

    /// Returns why the last list failed, while rule sets wait for another one; `None` if it did not.
    pub(super) fn error(&self) -> Option<&String> {
        self.error.as_ref().filter(|_| self.running.is_some() || !self.waiting.is_empty())
    }

    /// Returns the rule sets that wait for another list because the last one failed, each with the error.
    pub(super) fn errors(&self) -> BTreeMap<String, String> {
        let sets = self.running.iter().flat_map(|running| &running.sets).chain(&self.waiting);
        sets.filter_map(|set| Some((set.clone(), self.error.clone()?))).collect()
    }

    /// Returns when the rule sets that wait for a list are to be decided about again; `None` if none waits, or a list
    /// runs.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.next.filter(|_| self.running.is_none() && !self.waiting.is_empty())
    }

    /// Returns the rule sets to decide about at `now`: those whose list has ended, and those for which one may begin.
    pub(super) fn due(&mut self, now: Instant) -> BTreeSet<String> {
        let waiting = self.due_at().filter(|at| *at <= now).map(|_| std::mem::take(&mut self.waiting));
        let listed = self.listed.iter().flat_map(|listed| listed.sets.iter().cloned());
        listed.chain(waiting.into_iter().flatten()).collect()
    }

    /// Notes that a decision has been made. If no rule set needs a list any more, the last failure does not count for
    /// those that need one later.
    pub(super) fn decided(&mut self) {
        if self.running.is_none() && self.waiting.is_empty() {
            (self.failures, self.error) = (0, None);
        }
    }

    /// Returns the pods that have just been listed, for a decision at this time; `None` if there are none.
    pub(super) fn take_listed(&mut self) -> Option<ListedPods> {
        self.listed.take().filter(|listed| listed.ended.elapsed() < MAX_AGE)
    }

    /// Keeps a list for the next decision, because this one was not completed.
    pub(super) fn put_back(&mut self, listed: Option<ListedPods>) {
        self.listed = listed;
    }
}

/// Lists the pods of `owners` that are not opted in. Returns them by the owner's UID.
///
/// # Errors
/// When the pods of an owner can't be listed.
async fn list(
    context: &RuleContext,
    namespace: &str,
    owners: Vec<OwnerToList>,
) -> Result<HashMap<String, PodsOfOwner>, String> {
    let lists = owners.into_iter().map(|owner| async move {
        let outside = context.outside_pods.ready(namespace, &owner).await?;
        Ok((owner.owner.uid.clone(), PodsOfOwner { owner, outside }))
    });
    let lists: Vec<_> = lists.collect();
    stream::iter(lists).buffer_unordered(MAX_CONCURRENT_LISTS).try_collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    impl OutsideLists {
        /// Returns lists of which one has ended, which was not noticed.
        pub(in super::super) async fn with_ended() -> Self {
            let now = Instant::now();
            let ended = EndedList { result: Ok(HashMap::new()), began: now, ended: now };
            let task = AbortOnDropHandle::new(tokio::spawn(async { ended }));
            while !task.is_finished() {
                tokio::task::yield_now().await;
            }
            let running = Some(RunningList { sets: ["web".to_owned()].into(), task });
            OutsideLists { running, ..OutsideLists::default() }
        }
    }

    fn listed(ended: Instant) -> ListedPods {
        ListedPods { sets: ["web".to_owned()].into(), owners: HashMap::new(), ended }
    }

    #[test]
    fn a_list_counts_once_and_not_for_long() {
        let now = Instant::now();
        let mut lists = OutsideLists { listed: Some(listed(now)), ..OutsideLists::default() };
        assert_eq!(lists.due(now), ["web".to_owned()].into());
        assert!(lists.take_listed().is_some() && lists.take_listed().is_none());
        lists.listed = Some(listed(now.checked_sub(MAX_AGE).unwrap()));
        assert!(lists.take_listed().is_none());
    }

    #[test]
    fn a_list_is_kept_for_the_next_decision_if_one_was_not_completed() {
        let now = Instant::now();
        let mut lists = OutsideLists { listed: Some(listed(now)), ..OutsideLists::default() };
        let taken = lists.take_listed();
        assert_eq!(lists.due(now), BTreeSet::new());
        lists.put_back(taken);
        assert_eq!(lists.due(now), ["web".to_owned()].into());
        assert!(lists.take_listed().is_some());
    }

    #[test]
    fn a_list_that_was_not_enough_is_repeated_with_the_rest() {
        let now = Instant::now();
        let mut lists = OutsideLists { next: Some(now), ..OutsideLists::default() };
        let other: BTreeSet<String> = ["other".to_owned()].into();
        assert!(!lists.must_wait(&other, None));
        assert!(lists.must_wait(&other, Some(&listed(now))));
        assert_eq!((lists.running.is_none(), lists.due_at()), (true, Some(now)));
        assert_eq!(lists.due(now), ["other".to_owned(), "web".to_owned()].into());
    }

    #[test]
    fn a_failure_is_forgotten_when_no_rule_set_needs_the_list_any_more() {
        let failed =
            || OutsideLists { failures: 3, error: Some("denied".to_owned()), ..OutsideLists::default() };
        let mut lists = failed();
        lists.waiting.insert("web".to_owned());
        lists.decided();
        assert_eq!((lists.failures, lists.error()), (3, Some(&"denied".to_owned())));
        let mut lists = failed();
        lists.decided();
        lists.waiting.insert("other".to_owned());
        assert_eq!((lists.failures, lists.errors()), (0, BTreeMap::new()), "its list has not failed");
    }

    #[test]
    fn rule_sets_wait_until_a_list_may_begin() {
        let now = Instant::now();
        let next = now + LONGEST_PAUSE;
        let mut lists = OutsideLists { next: Some(next), ..OutsideLists::default() };
        assert_eq!(lists.due_at(), None);
        lists.waiting.insert("web".to_owned());
        assert_eq!((lists.due_at(), lists.due(now)), (Some(next), BTreeSet::new()));
        assert_eq!((lists.due(next), lists.due_at()), (["web".to_owned()].into(), None));
    }
}
