//! What a hook system of a test answers, and what it was asked.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use podward_proto::v1::{self, Phase};
use podward_support::{WAIT, within};
use tokio::sync::watch;
use tonic::{Code, Status};

/// How soon a hook that isn't done wants to be asked again.
const RETRY: prost_types::Duration = prost_types::Duration { seconds: 0, nanos: 100_000_000 };

/// An answer, or what comes instead of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// DONE, PROVEN by [`PROOF`].
    Done,
    /// PENDING, with [`EXCUSE`].
    Pending,
    /// REJECTED, for this reason.
    Rejected(&'static str),
    /// Nothing, for as long as the script says so.
    Silent,
    /// An error.
    Fails(Code),
    /// An answer that says nothing.
    Nothing,
    /// An answer far too large.
    Giant,
}

/// The detail of the evidence of [`Reply::Done`].
pub(crate) const PROOF: &str = "seen by the test";
/// The message of [`Reply::Pending`].
pub(crate) const EXCUSE: &str = "the test is not done";

/// A question that came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Grows over all hooks of all tests.
    pub(crate) turn: usize,
    pub(crate) phase: Phase,
    pub(crate) pod: String,
    pub(crate) request: v1::HandleRequest,
    /// How it was answered; not if the caller went away first.
    pub(crate) reply: Option<Reply>,
}

/// All questions so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) asked: Vec<Asked>,
    /// Open at this moment, and the most that ever were.
    pub(crate) open: usize,
    pub(crate) most_open: usize,
    /// The `traceparent` headers of calls.
    pub(crate) traceparents: Vec<String>,
}

impl Log {
    /// The questions of `phase` about `pod`.
    pub(crate) fn about(&self, pod: &str, phase: Phase) -> impl Iterator<Item = &Asked> {
        self.asked.iter().filter(move |asked| asked.pod == pod && asked.phase == phase)
    }

    /// When it was first asked.
    pub(crate) fn first(&self, pod: &str, phase: Phase) -> Option<usize> {
        self.about(pod, phase).map(|asked| asked.turn).next()
    }

    /// When it was last asked.
    pub(crate) fn last(&self, pod: &str, phase: Phase) -> Option<usize> {
        self.about(pod, phase).map(|asked| asked.turn).last()
    }
}

/// One rule: for this pod (or any), in this phase (or any), this answer.
type Rule = (Option<String>, Option<Phase>, Reply);

/// The script. What no rule is for is DONE.
#[derive(Debug, Default)]
pub(crate) struct Script {
    rules: watch::Sender<Vec<Rule>>,
    log: watch::Sender<Log>,
}

impl Script {
    /// From now on this is answered about any pod in `phase`.
    pub(crate) fn answer(&self, phase: Phase, reply: Reply) {
        self.rules.send_modify(|rules| rules.push((None, Some(phase), reply)));
    }

    /// From now on this is answered about `pod` in `phase`.
    pub(crate) fn answer_about(&self, pod: &str, phase: Phase, reply: Reply) {
        self.rules.send_modify(|rules| rules.push((Some(pod.to_owned()), Some(phase), reply)));
    }

    /// From now on this is answered to everything.
    pub(crate) fn answer_all(&self, reply: Reply) {
        self.rules.send_modify(|rules| rules.push((None, None, reply)));
    }

    /// A call came with this `traceparent` header.
    pub(crate) fn called_within(&self, traceparent: Option<&str>) {
        self.log.send_modify(|log| log.traceparents.extend(traceparent.map(ToOwned::to_owned)));
    }

    /// What was asked so far.
    pub(crate) fn log(&self) -> Log {
        self.log.borrow().clone()
    }

    /// Waits until what was asked is as `test` wants it.
    pub(crate) async fn until(&self, what: &str, mut test: impl FnMut(&Log) -> bool) -> Result<Log> {
        let mut log = self.log.subscribe();
        let reached =
            async { Ok(log.wait_for(|log| test(log)).await.context("the script is gone")?.clone()) };
        let waited = within(WAIT, || what.to_owned(), reached).await;
        waited.with_context(|| {
            let asked = self.log().asked;
            let told = asked.iter().map(|asked| format!("{} {:?} {:?}", asked.pod, asked.phase, asked.reply));
            format!("the hook was asked: {}", told.collect::<Vec<_>>().join(", "))
        })
    }

    /// Waits until it was asked `phase` about `pod`.
    pub(crate) async fn until_asked(&self, pod: &str, phase: Phase) -> Result<Asked> {
        let what = format!("the hook to be asked {phase:?} about pod {pod}");
        let log = self.until(&what, |log| log.first(pod, phase).is_some()).await?;
        let asked = log.about(pod, phase).next().cloned();
        asked.context("it was asked, and wasn't")
    }

    /// Waits until it was asked `phase` about `pod` more often by `times` than it was.
    pub(crate) async fn until_asked_again(&self, pod: &str, phase: Phase, times: usize) -> Result<Log> {
        let count = |log: &Log| log.about(pod, phase).count();
        let before = count(&self.log());
        let what = format!("the hook to be asked {phase:?} about pod {pod} another {times} times");
        self.until(&what, |log| count(log) >= before + times).await
    }

    /// Answers a question by the rules, as they are when it is answered.
    pub(crate) async fn handle(&self, request: v1::HandleRequest) -> Result<v1::HandleResponse, Status> {
        let phase = Phase::try_from(request.phase).unwrap_or_default();
        let pod = request.pod.as_ref().map(|pod| pod.name.clone()).unwrap_or_default();
        let open = Open::new(self, phase, &pod, request);
        let mut rules = self.rules.subscribe();
        let reply = loop {
            let reply = rules.borrow_and_update().iter().rev().find_map(|(of, phases, reply)| {
                let is_for = of.as_ref().is_none_or(|of| *of == pod) && phases.is_none_or(|of| of == phase);
                is_for.then_some(*reply)
            });
            match reply.unwrap_or(Reply::Done) {
                Reply::Silent => match rules.changed().await {
                    Ok(()) => {}
                    Err(_) => std::future::pending().await,
                },
                reply => break reply,
            }
        };
        open.replied(reply);
        respond(reply)
    }
}

/// A question that is being answered; also when the caller goes away.
struct Open<'a> {
    script: &'a Script,
    turn: usize,
}

impl<'a> Open<'a> {
    fn new(script: &'a Script, phase: Phase, pod: &str, request: v1::HandleRequest) -> Self {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let turn = TURN.fetch_add(1, Ordering::SeqCst);
        script.log.send_modify(|log| {
            log.asked.push(Asked { turn, phase, pod: pod.to_owned(), request, reply: None });
            log.open += 1;
            log.most_open = log.most_open.max(log.open);
        });
        Self { script, turn }
    }

    fn replied(&self, reply: Reply) {
        self.script.log.send_modify(|log| {
            let of_turn = log.asked.iter_mut().find(|asked| asked.turn == self.turn);
            of_turn.into_iter().for_each(|asked| asked.reply = Some(reply));
        });
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.script.log.send_modify(|log| log.open -= 1);
    }
}

fn respond(reply: Reply) -> Result<v1::HandleResponse, Status> {
    let with = |outcome: v1::Outcome| v1::HandleResponse { outcome: outcome.into(), ..Default::default() };
    let done = |detail: String| {
        let evidence = v1::Evidence { level: v1::EvidenceLevel::Proven.into(), detail };
        v1::HandleResponse { evidence: Some(evidence), ..with(v1::Outcome::Done) }
    };
    let not_done = |outcome, message: &str| v1::HandleResponse {
        message: message.to_owned(),
        retry_after: Some(RETRY),
        ..with(outcome)
    };
    match reply {
        Reply::Done => Ok(done(PROOF.to_owned())),
        Reply::Pending => Ok(not_done(v1::Outcome::Pending, EXCUSE)),
        Reply::Rejected(reason) => Ok(not_done(v1::Outcome::Rejected, reason)),
        Reply::Fails(code) => Err(Status::new(code, "as the test wants it")),
        Reply::Nothing | Reply::Silent => Ok(v1::HandleResponse::default()),
        Reply::Giant => Ok(done("x".repeat(1_000_000))),
    }
}
