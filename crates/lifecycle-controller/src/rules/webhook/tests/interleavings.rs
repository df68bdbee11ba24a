//! Whatever happens in whatever order: no pass without a word of the webhook's for that asking, nothing twice at a time, nobody forgotten.

use std::collections::{BTreeMap, BTreeSet};

use podward_core::UnixNanos;
use proptest::prelude::*;

use super::super::answer::{Failure, PollAnswer, PostAnswer};
use super::super::asking::{AskingKey, Subject};
use super::super::machine::{Call, Machine, Verdict};
use super::{SECOND, at, machine, settings, subject};

const PODS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Event {
    /// A pod asks (anew).
    Ask(usize),
    /// A pod doesn't ask any more.
    Leave(usize),
    /// The oldest or the latest call is answered.
    Answer { latest: bool, success: bool, task: bool, finished: Vec<usize>, stop: bool, fails: bool },
    /// Time goes by.
    Pass(i64),
    /// The process is another one, with what was put on record.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    let answer = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(0..4_usize, 0..3),
        any::<bool>(),
        any::<bool>(),
    );
    prop_oneof![
        3 => (0..4_usize).prop_map(Event::Ask),
        1 => (0..4_usize).prop_map(Event::Leave),
        4 => answer.prop_map(|(latest, success, task, finished, stop, fails)| Event::Answer { latest, success, task, finished, stop, fails }),
        4 => (0..30_i64).prop_map(Event::Pass),
        1 => Just(Event::Restart),
    ]
}

struct World {
    machine: Machine,
    now: UnixNanos,
    asking: BTreeMap<usize, i64>,
    times: i64,
    open: Vec<(Call, Vec<Subject>)>,
    /// For which askings the webhook has said yes.
    allowed: BTreeSet<AskingKey>,
    /// Who is in which task, by the webhook's books.
    tasks: BTreeMap<String, Vec<Subject>>,
}

impl World {
    fn subjects(&self) -> Vec<Subject> {
        self.asking.iter().map(|(pod, time)| subject(PODS[*pod], *time)).collect()
    }

    fn turn(&mut self) {
        self.machine.ask(self.subjects(), self.now);
        for call in self.machine.next(self.now).calls {
            let sent = match &call {
                Call::Post { pods, .. } => pods.clone(),
                Call::Poll { task, .. } => self.tasks.get(task).cloned().unwrap_or_default(),
            };
            self.open.push((call, sent));
        }
        let posts = self.open.iter().filter(|(call, _)| matches!(call, Call::Post { .. })).count();
        assert!(posts <= 1, "two batches at a time: {:?}", self.open);
        for subject in self.subjects() {
            if self.machine.verdict(&subject) == Verdict::Passed {
                assert!(self.allowed.contains(&subject.key), "{subject:?} passed, and nobody said so");
            }
        }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Ask(pod) => {
                self.times += 1;
                self.asking.insert(*pod, self.times);
            }
            Event::Leave(pod) => {
                self.asking.remove(pod);
            }
            Event::Pass(seconds) => self.now = UnixNanos(self.now.0 + seconds * SECOND),
            Event::Restart => {
                let stored = self.machine.status(self.now);
                self.open.clear();
                self.machine = Machine::new("n".to_owned(), settings(false), Some(&stored), self.now);
            }
            Event::Answer { latest, success, task, finished, stop, fails } => {
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
        call: Call,
        sent: &[Subject],
        (success, task, stop, fails): (bool, bool, bool, bool),
        finished: &[usize],
    ) {
        let finished_names: Vec<String> = finished.iter().map(|pod| PODS[*pod].to_owned()).collect();
        let names: BTreeSet<&String> = finished_names.iter().collect();
        let all = success && (!task || matches!(call, Call::Poll { .. }));
        if !fails {
            let said = sent.iter().filter(|subject| all || names.contains(&subject.pod));
            self.allowed.extend(said.map(|subject| subject.key));
        }
        let failure = || Failure::Webhook("away".to_owned());
        match call {
            Call::Post { number, .. } => {
                self.times += 1;
                let id = format!("t-{}", self.times);
                if success && task && !fails {
                    self.tasks.insert(id.clone(), sent.to_vec());
                }
                let answer =
                    PostAnswer { success, message: String::new(), finished_names, task: task.then_some(id) };
                self.machine.posted(
                    number,
                    "trace",
                    if fails { Err(failure()) } else { Ok(answer) },
                    self.now,
                    0.5,
                );
            }
            Call::Poll { number, .. } => {
                let answer =
                    PollAnswer { success, message: String::new(), finished: success, finished_names, stop };
                self.machine.polled(number, if fails { Err(failure()) } else { Ok(answer) }, self.now);
            }
        }
    }

    /// From now on the webhook says yes: everybody passes, in a bounded number of rounds.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.turn();
            while let Some((call, sent)) = self.open.pop() {
                self.answer(call, &sent, (true, false, false, false), &[]);
            }
            self.now = UnixNanos(self.now.0 + 61 * SECOND);
        }
        self.turn();
        for subject in self.subjects() {
            assert_eq!(self.machine.verdict(&subject), Verdict::Passed, "{subject:?} is forgotten");
        }
        let status = self.machine.status(self.now);
        assert!(status.task_states.is_empty(), "{status:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_pass_without_a_word_and_nobody_forgotten(events in prop::collection::vec(event(), 0..60)) {
        let mut world = World {
            machine: machine(false),
            now: at(0),
            asking: BTreeMap::new(),
            times: 0,
            open: Vec::new(),
            allowed: BTreeSet::new(),
            tasks: BTreeMap::new(),
        };
        for event in &events {
            world.apply(event);
            world.turn();
        }
        world.settle();
    }
}
