//! The hook systems: the calls that they have received from any process, what they answer, and whether traffic really
//! comes to a pod through them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use podward_core::hooks::{
    Evidence, EvidenceLevel, Hook, HookAnswer, HookAnswers, HookPhase, HookQuestion, HookSet,
};

use super::fault::Fault;
use crate::hook_model::Side;

/// The most calls that were withdrawn and are still on their way.
const WITHDRAWN_CALLS: usize = 6;

/// A process of a controller. Another number when it has started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) replica: usize,
    pub(crate) start: usize,
}

/// A call that a hook has not answered DONE yet.
#[derive(Clone, Debug)]
struct Call {
    from: Process,
    uid: String,
    question: HookQuestion,
    /// The caller does not wait for the answer any more.
    is_withdrawn: bool,
}

/// An answer on its way to the caller.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) to: Process,
    pub(crate) uid: String,
    pub(crate) question: HookQuestion,
    pub(crate) answer: HookAnswer,
}

/// What a hook says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    Done,
    Pending,
    No,
}

#[derive(Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) set: Arc<HookSet>,
    pub(crate) all: Vec<Arc<Hook>>,
    calls: Vec<Call>,
    replies: Vec<Reply>,
    /// By UID and hook.
    sides: BTreeMap<(String, String), Side>,
    /// The times of the newest questions to drain and to add a pod that a hook has heard.
    newest: BTreeMap<(String, String), (i64, i64)>,
    /// Calls end when they are withdrawn, and no question is out of date.
    is_fast: bool,
}

impl Hooks {
    pub(crate) fn new(hooks: &[Hook], is_fast: bool) -> Self {
        let set = HookSet::new(hooks.iter().cloned());
        Hooks { all: set.iter().cloned().collect(), set: Arc::new(set), is_fast, ..Hooks::default() }
    }

    /// Returns whether traffic comes to the pod through `hook`.
    pub(crate) fn side(&self, uid: &str, hook: &str) -> Side {
        self.sides.get(&(uid.to_owned(), hook.to_owned())).copied().unwrap_or(Side::Out)
    }

    /// Returns the number of calls that are not answered DONE yet.
    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// A process replaces its questions about a pod. A call that is withdrawn may be on its way all the same.
    pub(crate) fn ask(&mut self, from: Process, uid: &str, questions: &[HookQuestion]) {
        for call in self.calls.iter_mut().filter(|call| call.from == from && call.uid == uid) {
            call.is_withdrawn = !questions.iter().any(|question| is_same(question, &call.question));
        }
        for question in questions {
            let is_known =
                |call: &Call| call.from == from && call.uid == uid && is_same(question, &call.question);
            if !self.calls.iter().any(is_known) {
                let (uid, question) = (uid.to_owned(), question.clone());
                self.calls.push(Call { from, uid, question, is_withdrawn: false });
            }
        }
        self.forget_withdrawn();
    }

    /// A process has ended, and so have its calls.
    pub(crate) fn ended(&mut self, process: Process) {
        self.replies.retain(|reply| reply.to != process);
        for call in self.calls.iter_mut().filter(|call| call.from == process) {
            call.is_withdrawn = true;
        }
        self.forget_withdrawn();
    }

    fn forget_withdrawn(&mut self) {
        let most = if self.is_fast { 0 } else { WITHDRAWN_CALLS };
        let mut surplus = self.calls.iter().filter(|call| call.is_withdrawn).count().saturating_sub(most);
        self.calls.retain(|call| {
            let goes = call.is_withdrawn && surplus > 0;
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// All calls that were withdrawn are gone.
    pub(crate) fn drop_withdrawn(&mut self) {
        self.calls.retain(|call| !call.is_withdrawn);
    }

    /// A hook works on one of the calls. Returns false if there is none.
    ///
    /// A hook does not add a pod for a question that was first asked before it was last asked to drain the pod, nor
    /// the
    /// other way round: the caller may be a leader that has lost its lease and does not know it.
    pub(crate) fn work(&mut self, number: usize, say: Say) -> bool {
        if self.calls.is_empty() {
            return false;
        }
        let number = number % self.calls.len();
        let Call { from, uid, question, is_withdrawn } = self.calls[number].clone();
        let key = (uid.clone(), question.hook.clone());
        let (drain, add) = self.newest.entry(key.clone()).or_insert((i64::MIN, i64::MIN));
        let since = question.since.0;
        let is_outdated = match question.phase {
            HookPhase::Prepare => since < *add,
            HookPhase::Complete => since < *drain,
            HookPhase::PreCheck | HookPhase::PostCheck | HookPhase::Release => false,
        };
        if is_outdated && !self.is_fast {
            if is_withdrawn {
                self.calls.remove(number);
            }
            return false;
        }
        match question.phase {
            HookPhase::Prepare => *drain = since.max(*drain),
            // The pod is gone for good here, so nothing adds it again.
            HookPhase::Release => *drain = i64::MAX,
            HookPhase::Complete => *add = since.max(*add),
            HookPhase::PreCheck | HookPhase::PostCheck => {}
        }
        let side = match (say, question.phase) {
            (_, HookPhase::PreCheck | HookPhase::PostCheck) => None,
            (Say::Done, HookPhase::Complete) => Some(Side::In),
            (Say::Done, _) => Some(Side::Out),
            (Say::Pending, phase) => {
                // A question that is repeated after DONE changes nothing.
                let reached = if phase == HookPhase::Complete { Side::In } else { Side::Out };
                (self.side(&uid, &question.hook) != reached).then_some(Side::Between)
            }
            (Say::No, _) => None,
        };
        self.sides.extend(side.map(|side| (key, side)));
        let detail = format!("{uid} {}", question.since.0);
        let answer = match say {
            Say::Done => HookAnswer::Done(Evidence { level: EvidenceLevel::Proven, detail }),
            Say::Pending => HookAnswer::Open { message: "3 sessions".to_owned() },
            Say::No => HookAnswer::Rejected { reason: "not now".to_owned() },
        };
        if say == Say::Done || is_withdrawn {
            self.calls.remove(number);
        }
        if !is_withdrawn {
            self.replies.push(Reply { to: from, uid, question, answer });
        }
        true
    }

    /// Takes an answer that has arrived, or was lost.
    pub(crate) fn take_reply(&mut self, number: usize) -> Option<Reply> {
        if self.replies.is_empty() { None } else { Some(self.replies.remove(number % self.replies.len())) }
    }
}

fn is_same(one: &HookQuestion, other: &HookQuestion) -> bool {
    one.hook == other.hook && one.phase == other.phase && one.since == other.since
}

/// What a process knows of answers. It is lost when the process ends.
#[derive(Debug, Default)]
pub(crate) struct KnownAnswers {
    /// By UID: the questions, and their last answers.
    by_pod: HashMap<String, Vec<(HookQuestion, HookAnswer)>>,
}

impl KnownAnswers {
    /// Questions are asked. Of others, only the answer DONE is kept.
    pub(crate) fn ask(&mut self, uid: &str, questions: &[HookQuestion]) {
        let known = self.by_pod.entry(uid.to_owned()).or_default();
        known.retain(|(question, answer)| {
            matches!(answer, HookAnswer::Done(_)) || questions.iter().any(|asked| is_same(asked, question))
        });
        for question in questions {
            if !known.iter().any(|(other, _)| is_same(question, other)) {
                known.push((question.clone(), HookAnswer::Open { message: String::new() }));
            }
        }
    }

    /// An answer has arrived. That to a question that is not asked any more is ignored.
    pub(crate) fn heard(&mut self, reply: Reply) {
        let known = self.by_pod.get_mut(&reply.uid).into_iter().flatten();
        for (_, answer) in known.filter(|(question, _)| is_same(question, &reply.question)) {
            if !matches!(answer, HookAnswer::Done(_)) {
                *answer = reply.answer.clone();
            }
        }
    }

    pub(crate) fn about<'a>(&'a self, uid: &'a str, fault: Option<Fault>) -> AnswersAbout<'a> {
        AnswersAbout { known: self, uid, fault }
    }
}

/// The answers about one pod.
pub(crate) struct AnswersAbout<'a> {
    known: &'a KnownAnswers,
    uid: &'a str,
    fault: Option<Fault>,
}

impl HookAnswers for AnswersAbout<'_> {
    fn answer(&self, question: &HookQuestion) -> Option<HookAnswer> {
        let name = |uid: &str| uid.split('#').next().unwrap_or_default().to_owned();
        let known = &self.known.by_pod;
        let of_name = |other: &&String| name(other) == name(self.uid);
        let pods: Vec<&String> = match self.fault {
            Some(Fault::AnswersByName) => known.keys().filter(of_name).collect(),
            _ => Vec::new(),
        };
        let earlier = |(other, answer): &&(HookQuestion, HookAnswer)| {
            other.hook == question.hook
                && other.phase == question.phase
                && matches!(answer, HookAnswer::Done(_))
        };
        let own = known.get(self.uid).into_iter().flatten();
        let mut faulty: Vec<_> = pods.into_iter().filter_map(|uid| known.get(uid)).flatten().collect();
        if self.fault == Some(Fault::AnswersOfAnyRound) {
            faulty.extend(own.clone());
        }
        let same = own.clone().find(|(other, _)| is_same(other, question));
        let found = faulty.into_iter().find(earlier).or(same);
        found.map(|(_, answer)| answer.clone())
    }

    fn withhold_unless_asked(&self, hook: &str, phase: HookPhase) -> bool {
        let own = self.known.by_pod.get(self.uid).into_iter().flatten();
        // The answers DONE are kept after their questions are closed.
        own.filter(|(_, answer)| !matches!(answer, HookAnswer::Done(_)))
            .any(|(question, _)| question.hook == hook && question.phase == phase)
    }
}
