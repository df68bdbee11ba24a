//! Properties that hold for events in any order: no pod passes before the webhook approved its check request, one batch
//! at a time, and no pod is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use podward_core::UnixNanos;
use proptest::prelude::*;

use super::super::machine::{CheckKey, WaitingPod};
use super::super::machine::{WebhookCall, WebhookMachine, WebhookVerdict};
use super::super::wire::{PollAnswer, PostAnswer, WebhookFailure};
use super::{SECOND, at, machine, nominal_delay, settings, waiting_pod};

const PODS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum WebhookEvent {
    /// A pod starts to wait, with a new check request.
    Ask(usize),
    /// A pod stops waiting.
    Leave(usize),
    /// The oldest or the latest call is answered.
    Answer { latest: bool, success: bool, task: bool, finished: Vec<usize>, stop: bool, fails: bool },
    /// The latest request, if it is a batch, has no room for its last pod.
    Cut,
    /// So many seconds pass.
    Pass(i64),
    /// Another process continues from the stored status.
    Restart,
}

fn event() -> impl Strategy<Value = WebhookEvent> {
    let answer = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(0..4_usize, 0..3),
        any::<bool>(),
        any::<bool>(),
    );
    prop_oneof![
        3 => (0..4_usize).prop_map(WebhookEvent::Ask),
        1 => (0..4_usize).prop_map(WebhookEvent::Leave),
        4 => answer.prop_map(|(latest, success, task, finished, stop, fails)| {
            WebhookEvent::Answer { latest, success, task, finished, stop, fails }
        }),
        1 => Just(WebhookEvent::Cut),
        4 => (0..30_i64).prop_map(WebhookEvent::Pass),
        1 => Just(WebhookEvent::Restart),
    ]
}

struct Model {
    machine: WebhookMachine,
    now: UnixNanos,
    /// By pod: the number of its check request.
    waiting: BTreeMap<usize, i64>,
    /// The check requests and tasks so far.
    count: i64,
    open: Vec<(WebhookCall, Vec<WaitingPod>)>,
    /// The check requests that the webhook approved.
    allowed: BTreeSet<CheckKey>,
    /// The pods of each task.
    tasks: BTreeMap<String, Vec<WaitingPod>>,
}

impl Model {
    fn pods(&self) -> Vec<WaitingPod> {
        self.waiting.iter().map(|(pod, time)| waiting_pod(PODS[*pod], *time)).collect()
    }

    fn step(&mut self) {
        self.machine.set_waiting(self.pods(), self.now);
        for call in self.machine.next_calls(self.now).calls {
            let sent = match &call {
                WebhookCall::Post { pods, .. } => pods.clone(),
                WebhookCall::Poll { task, .. } => self.tasks.get(task).cloned().unwrap_or_default(),
            };
            self.open.push((call, sent));
        }
        let posts = self.open.iter().filter(|(call, _)| matches!(call, WebhookCall::Post { .. })).count();
        assert!(posts <= 1, "two batches at a time: {:?}", self.open);
        for pod in self.pods() {
            if self.machine.verdict(&pod) == WebhookVerdict::Passed {
                assert!(self.allowed.contains(&pod.key), "{pod:?} passed without an approval");
            }
        }
    }

    fn apply(&mut self, event: &WebhookEvent) {
        match event {
            WebhookEvent::Ask(pod) => {
                self.count += 1;
                self.waiting.insert(*pod, self.count);
            }
            WebhookEvent::Leave(pod) => {
                self.waiting.remove(pod);
            }
            WebhookEvent::Cut => {
                if let Some((WebhookCall::Post { number, .. }, sent)) = self.open.last_mut()
                    && let Some(cut) = sent.pop()
                {
                    self.machine.leave_out(*number, &[(cut.name, None)].into(), self.now);
                }
            }
            WebhookEvent::Pass(seconds) => self.now = UnixNanos(self.now.0 + seconds * SECOND),
            WebhookEvent::Restart => {
                let stored = self.machine.status(self.now);
                self.open.clear();
                self.machine = WebhookMachine::new("n".to_owned(), settings(false), Some(&stored), self.now);
            }
            WebhookEvent::Answer { latest, success, task, finished, stop, fails } => {
                let index = if *latest { self.open.len().saturating_sub(1) } else { 0 };
                if index < self.open.len() {
                    let (call, sent) = self.open.remove(index);
                    self.answer(call, &sent, (*success, *task, *stop, *fails), finished);
                }
            }
        }
    }

    fn answer(
        &mut self,
        call: WebhookCall,
        sent: &[WaitingPod],
        (success, task, stop, fails): (bool, bool, bool, bool),
        finished: &[usize],
    ) {
        let finished_names: Vec<String> = finished.iter().map(|pod| PODS[*pod].to_owned()).collect();
        let names: BTreeSet<&String> = finished_names.iter().collect();
        let all = success && (!task || matches!(call, WebhookCall::Poll { .. }));
        if !fails {
            let approved = sent.iter().filter(|pod| all || names.contains(&pod.name));
            self.allowed.extend(approved.map(|pod| pod.key));
        }
        let failure = || WebhookFailure::Webhook("unreachable".to_owned());
        match call {
            WebhookCall::Post { number, .. } => {
                self.count += 1;
                let id = format!("t-{}", self.count);
                if success && task && !fails {
                    self.tasks.insert(id.clone(), sent.to_vec());
                }
                let answer =
                    PostAnswer { success, message: String::new(), finished_names, task: task.then_some(id) };
                self.machine.post_answered(
                    number,
                    "trace",
                    if fails { Err(failure()) } else { Ok(answer) },
                    self.now,
                    nominal_delay,
                );
            }
            WebhookCall::Poll { number, .. } => {
                let answer =
                    PollAnswer { success, message: String::new(), finished: success, finished_names, stop };
                self.machine.poll_answered(number, if fails { Err(failure()) } else { Ok(answer) }, self.now);
            }
        }
    }

    /// From now on the webhook approves every call. All pods pass in a bounded number of rounds.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.step();
            while let Some((call, sent)) = self.open.pop() {
                self.answer(call, &sent, (true, false, false, false), &[]);
            }
            self.now = UnixNanos(self.now.0 + 61 * SECOND);
        }
        self.step();
        for pod in self.pods() {
            assert_eq!(self.machine.verdict(&pod), WebhookVerdict::Passed, "{pod:?} is forgotten");
        }
        let status = self.machine.status(self.now);
        assert!(status.task_states.is_empty(), "{status:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_pass_without_approval_and_no_pod_forgotten(events in prop::collection::vec(event(), 0..60)) {
        let mut model = Model {
            machine: machine(false),
            now: at(0),
            waiting: BTreeMap::new(),
            count: 0,
            open: Vec::new(),
            allowed: BTreeSet::new(),
            tasks: BTreeMap::new(),
        };
        for event in &events {
            model.apply(event);
            model.step();
        }
        model.settle();
    }
}
