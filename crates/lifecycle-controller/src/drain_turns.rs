//! The turns of pods to leave service.
//!
//! The write that takes a pod out of service causes further writes, of Podward and of consumers, until the pod may be
//! operated on. If hundreds of pods left service at the same time, all of these writes would queue at the API server
//! together, and each pod would be out of service for as long as all of them take.
//!
//! So the number of writes at the same time that take pods out of service is limited. The more requests the API server
//! works on, the longer these writes take, and the fewer pods leave service each second. Pods that have left are finished
//! first, without a limit on their number: consumers that drain a pod for minutes delay no other pod.

mod limit;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::Stream;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use podward_kube_util::{CachedPod, PodKey};
use podward_runtime::round_robin::RoundRobin;

use self::limit::AdaptiveLimit;
use crate::report::Metrics;

/// The longest turn. A write that takes longer, or a pod that does not use its turn, does not delay other pods further.
const LONGEST_TURN: Duration = Duration::from_secs(1);

/// The turns of pods to leave service.
#[derive(Clone)]
pub(crate) struct DrainTurns(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    called: UnboundedSender<ObjectRef<CachedPod>>,
    metrics: Arc<Metrics>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let waiting = self.state.get_mut().waiting.len();
        self.metrics.queue_depth.dec_by(i64::try_from(waiting).unwrap_or_default());
    }
}

struct State {
    limit: AdaptiveLimit,
    /// The pods whose turn it is, with the number of the turn.
    current: HashMap<PodKey, u64>,
    last_number: u64,
    waiting: HashSet<PodKey>,
    /// The pods that wait, by namespace, so that many pods of one delay the others little.
    queue: RoundRobin<String, PodKey>,
}

impl State {
    /// Appends `pod` to the queue. Returns false if it waits already.
    fn push(&mut self, pod: &PodKey) -> bool {
        let is_new = self.waiting.insert(pod.clone());
        if is_new {
            self.queue.push(&pod.namespace, pod.clone(), |_| false);
        }
        is_new
    }

    /// Removes the next pod from the queue. Namespaces without a turn come first: the writes of another may be slow.
    fn next(&mut self) -> Option<PodKey> {
        let Self { current, queue, .. } = self;
        let has_no_turn = |namespace: &String| !current.keys().any(|pod| pod.namespace == *namespace);
        let (_, pod) = queue.pop(has_no_turn)?;
        self.waiting.remove(&pod);
        Some(pod)
    }
}

/// The turn of a pod. It ends when this is dropped, or after [`LONGEST_TURN`].
pub(crate) struct DrainTurn {
    turns: DrainTurns,
    pod: PodKey,
    number: u64,
}

impl Drop for DrainTurn {
    fn drop(&mut self) {
        self.turns.end(&self.pod, self.number, None);
    }
}

impl DrainTurn {
    /// Ends the turn. The write has taken `took`.
    pub(crate) fn written(self, took: Duration) {
        self.turns.end(&self.pod, self.number, Some(took));
    }
}

impl DrainTurns {
    /// Returns turns of which none is taken, and a stream of the pods to reconcile because it is their turn.
    pub(crate) fn new(
        metrics: Arc<Metrics>,
    ) -> (Self, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let (called, pods) = unbounded();
        let state = State {
            limit: AdaptiveLimit::new(),
            current: HashMap::new(),
            last_number: 0,
            waiting: HashSet::new(),
            queue: RoundRobin::default(),
        };
        (DrainTurns(Arc::new(Shared { state: Mutex::new(state), called, metrics })), pods)
    }

    /// Returns the turn of `pod` if it has waited for it and was called.
    pub(crate) fn called(&self, pod: &PodKey) -> Option<DrainTurn> {
        let number = *self.0.state.lock().current.get(pod)?;
        Some(self.turn(pod, number))
    }

    /// Returns a turn of `pod`. Returns `None` if it has to wait; then it is called later.
    pub(crate) fn take(&self, pod: &PodKey) -> Option<DrainTurn> {
        let mut state = self.0.state.lock();
        if state.current.len() >= state.limit.pods() {
            if state.push(pod) {
                self.0.metrics.queue_depth.inc();
            }
            return None;
        }
        let number = self.begin(&mut state, pod);
        Some(self.turn(pod, number))
    }

    /// Returns true if pods wait for their turn.
    pub(crate) fn has_queue(&self) -> bool {
        !self.0.state.lock().waiting.is_empty()
    }

    fn turn(&self, pod: &PodKey, number: u64) -> DrainTurn {
        DrainTurn { turns: self.clone(), pod: pod.clone(), number }
    }

    /// Begins a turn and returns its number.
    fn begin(&self, state: &mut State, pod: &PodKey) -> u64 {
        state.last_number += 1;
        let number = state.last_number;
        state.current.insert(pod.clone(), number);
        let (turns, pod) = (Arc::downgrade(&self.0), pod.clone());
        tokio::spawn(async move {
            tokio::time::sleep(LONGEST_TURN).await;
            if let Some(turns) = turns.upgrade() {
                DrainTurns(turns).end(&pod, number, Some(LONGEST_TURN));
            }
        });
        number
    }

    /// Ends a turn, unless it has ended, and calls the next pods. `took` is the time of the write.
    fn end(&self, pod: &PodKey, number: u64, took: Option<Duration>) {
        let mut state = self.0.state.lock();
        if state.current.get(pod) != Some(&number) {
            return;
        }
        state.current.remove(pod);
        if let Some(took) = took {
            state.limit.observe(took, Instant::now());
        }
        while state.current.len() < state.limit.pods()
            && let Some(next) = state.next()
        {
            self.0.metrics.queue_depth.dec();
            self.begin(&mut state, &next);
            // It is not received when the leader stops.
            let _ = self.0.called.unbounded_send(next.object_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    fn pod(namespace: &str, number: usize) -> PodKey {
        PodKey { namespace: namespace.to_owned(), name: format!("web-{number}") }
    }

    /// Returns turns that pods of the namespace `other` have, those, and the stream of called pods. Three pods of the
    /// namespace `big` wait, and then one of the namespace `small`.
    fn queue() -> (DrainTurns, Vec<DrainTurn>, impl Stream<Item = ObjectRef<CachedPod>>) {
        let (turns, called) = DrainTurns::new(Arc::new(Metrics::new()));
        let taken: Vec<_> = (0..4).map(|number| turns.take(&pod("other", number)).unwrap()).collect();
        for waits in [pod("big", 10), pod("big", 11), pod("big", 12), pod("small", 1), pod("big", 10)] {
            assert!(turns.called(&waits).is_none() && turns.take(&waits).is_none());
        }
        assert_eq!(turns.0.metrics.queue_depth.get(), 4);
        (turns, taken, called)
    }

    #[tokio::test]
    async fn a_pod_is_called_when_another_has_left_service() {
        let (turns, mut taken, mut called) = queue();
        drop(taken.pop());
        assert_eq!(called.next().await, Some(pod("big", 10).object_ref()));
        assert!(turns.take(&pod("big", 11)).is_none(), "it is not its turn");
        taken.push(turns.called(&pod("big", 10)).unwrap());

        for next in [pod("small", 1), pod("big", 11), pod("big", 12)] {
            drop(taken.pop());
            assert_eq!(called.next().await, Some(next.object_ref()));
            taken.extend(turns.called(&next));
        }
        assert_eq!(turns.0.metrics.queue_depth.get(), 0);
    }

    #[tokio::test]
    async fn many_pods_of_a_namespace_do_not_delay_those_of_another() {
        let (_turns, mut taken, mut called) = queue();
        taken.truncate(2);
        assert_eq!(called.next().await, Some(pod("big", 10).object_ref()));
        assert_eq!(called.next().await, Some(pod("small", 1).object_ref()));
    }

    #[tokio::test]
    async fn a_namespace_whose_writes_are_slow_leaves_turns_to_others() {
        let (turns, mut taken, mut called) = queue();
        drop(taken.pop());
        assert_eq!(called.next().await, Some(pod("big", 10).object_ref()));
        // The write of the pod of `big` is slow, all others are quick.
        for next in [pod("small", 1), pod("small", 2), pod("small", 3)] {
            assert!(turns.take(&pod("small", 2)).is_none() && turns.take(&pod("small", 3)).is_none());
            drop(taken.pop());
            assert_eq!(called.next().await, Some(next.object_ref()));
            taken.extend(turns.called(&next));
        }
    }

    #[tokio::test]
    async fn a_leader_that_stops_leaves_no_pod_in_the_metric() {
        let (turns, taken, called) = queue();
        let metrics = turns.0.metrics.clone();
        drop((turns, called));
        assert_eq!(metrics.queue_depth.get(), 4);
        drop(taken);
        assert_eq!(metrics.queue_depth.get(), 0);
    }

    #[tokio::test]
    async fn neither_a_slow_write_nor_a_pod_that_is_gone_stops_the_queue() {
        let (turns, taken, mut called) = queue();
        // Neither are the turns dropped, nor do the called pods take theirs.
        assert_eq!(called.by_ref().take(4).count().await, 4);
        let late = pod("big", 20);
        assert!(turns.take(&late).is_none());
        assert_eq!(called.next().await, Some(late.object_ref()));
        let turn = turns.called(&late).unwrap();
        drop(taken);
        assert!(turns.called(&late).is_some(), "turns that have ended end no other");
        drop(turn);
        assert!(turns.called(&late).is_none());
    }
}
