//! The replies of a test's hook system, and its calls.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use podward_proto::v1::{self, Phase};
use podward_support::{WAIT, within};
use tokio::sync::watch;
use tonic::{Code, Status};

/// The delay until the next call, as a hook requests it with PENDING.
const RETRY: prost_types::Duration = prost_types::Duration { seconds: 0, nanos: 100_000_000 };

/// A reply, or what happens instead of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookReply {
    /// DONE, PROVEN by [`PROOF`].
    Done,
    /// PENDING, with [`EXCUSE`].
    Pending,
    /// REJECTED, for this reason.
    Rejected(&'static str),
    /// No reply, as long as the script says so.
    Silent,
    /// An error.
    Fails(Code),
    /// A reply without an outcome.
    Nothing,
    /// A reply that is too large.
    Giant,
}

/// The detail of the evidence of [`HookReply::Done`].
pub(crate) const PROOF: &str = "seen by the test";
/// The message of [`HookReply::Pending`].
pub(crate) const EXCUSE: &str = "the test is not done";

/// A call to the hook.
#[derive(Clone, Debug)]
pub(crate) struct HookCall {
    /// Increases over all hooks of all tests.
    pub(crate) turn: usize,
    pub(crate) phase: Phase,
    pub(crate) pod: String,
    pub(crate) request: v1::HandleRequest,
    /// The reply. `None` if the caller disconnected first.
    pub(crate) reply: Option<HookReply>,
}

/// The calls so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct HookCallLog {
    pub(crate) asked: Vec<HookCall>,
    /// The number of open calls, and their maximum.
    pub(crate) open: usize,
    pub(crate) most_open: usize,
    /// The `traceparent` headers of calls.
    pub(crate) traceparents: Vec<String>,
    /// The token of the last call.
    pub(crate) token: Option<String>,
}

impl HookCallLog {
    /// Returns the calls of `phase` for `pod`.
    pub(crate) fn about(&self, pod: &str, phase: Phase) -> impl Iterator<Item = &HookCall> {
        self.asked.iter().filter(move |asked| asked.pod == pod && asked.phase == phase)
    }

    /// Returns the number of the first call.
    pub(crate) fn first(&self, pod: &str, phase: Phase) -> Option<usize> {
        self.about(pod, phase).map(|asked| asked.turn).next()
    }

    /// Returns the number of the last call.
    pub(crate) fn last(&self, pod: &str, phase: Phase) -> Option<usize> {
        self.about(pod, phase).map(|asked| asked.turn).last()
    }
}

/// A rule: the reply for this pod (or any) in this phase (or any).
type ReplyRule = (Option<String>, Option<Phase>, HookReply);

/// The script. The reply is DONE if no rule matches.
#[derive(Debug, Default)]
pub(crate) struct HookScript {
    rules: watch::Sender<Vec<ReplyRule>>,
    log: watch::Sender<HookCallLog>,
}

impl HookScript {
    /// Keeps the header `authorization` of a call.
    pub(crate) fn called_with_token(&self, header: Option<&str>) {
        let token = header.and_then(|header| header.strip_prefix("Bearer ")).map(ToOwned::to_owned);
        self.log.send_modify(|log| log.token = token);
    }

    /// Returns the token of the last call.
    pub(crate) fn received_token(&self) -> Option<String> {
        self.log.borrow().token.clone()
    }

    /// Sets the reply for all pods in `phase`.
    pub(crate) fn answer(&self, phase: Phase, reply: HookReply) {
        self.rules.send_modify(|rules| rules.push((None, Some(phase), reply)));
    }

    /// Sets the reply for `pod` in `phase`.
    pub(crate) fn answer_about(&self, pod: &str, phase: Phase, reply: HookReply) {
        self.rules.send_modify(|rules| rules.push((Some(pod.to_owned()), Some(phase), reply)));
    }

    /// Sets the reply for all calls.
    pub(crate) fn answer_all(&self, reply: HookReply) {
        self.rules.send_modify(|rules| rules.push((None, None, reply)));
    }

    /// Records the `traceparent` header of a call.
    pub(crate) fn called_within(&self, traceparent: Option<&str>) {
        self.log.send_modify(|log| log.traceparents.extend(traceparent.map(ToOwned::to_owned)));
    }

    /// Returns the calls so far.
    pub(crate) fn log(&self) -> HookCallLog {
        self.log.borrow().clone()
    }

    /// Waits until `test` is true for the calls.
    pub(crate) async fn until(
        &self,
        what: &str,
        mut test: impl FnMut(&HookCallLog) -> bool,
    ) -> Result<HookCallLog> {
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

    /// Waits for a call of `phase` for `pod`.
    pub(crate) async fn until_called(&self, pod: &str, phase: Phase) -> Result<HookCall> {
        let what = format!("the hook to be asked {phase:?} about pod {pod}");
        let log = self.until(&what, |log| log.first(pod, phase).is_some()).await?;
        let asked = log.about(pod, phase).next().cloned();
        asked.context("it was asked, and wasn't")
    }

    /// Waits for this number of further calls of `phase` for `pod`.
    pub(crate) async fn until_called_again(
        &self,
        pod: &str,
        phase: Phase,
        times: usize,
    ) -> Result<HookCallLog> {
        let count = |log: &HookCallLog| log.about(pod, phase).count();
        let before = count(&self.log());
        let what = format!("the hook to be asked {phase:?} about pod {pod} another {times} times");
        self.until(&what, |log| count(log) >= before + times).await
    }

    /// Replies by the rules at the time of the reply.
    pub(crate) async fn handle(&self, request: v1::HandleRequest) -> Result<v1::HandleResponse, Status> {
        let phase = Phase::try_from(request.phase).unwrap_or_default();
        let pod = request.pod.as_ref().map(|pod| pod.name.clone()).unwrap_or_default();
        let open = OpenCall::new(self, phase, &pod, request);
        let mut rules = self.rules.subscribe();
        let reply = loop {
            let reply = rules.borrow_and_update().iter().rev().find_map(|(of, phases, reply)| {
                let is_for = of.as_ref().is_none_or(|of| *of == pod) && phases.is_none_or(|of| of == phase);
                is_for.then_some(*reply)
            });
            match reply.unwrap_or(HookReply::Done) {
                HookReply::Silent => match rules.changed().await {
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

/// A call that is open. It ends when the reply is sent or the caller disconnects.
struct OpenCall<'a> {
    script: &'a HookScript,
    turn: usize,
}

impl<'a> OpenCall<'a> {
    fn new(script: &'a HookScript, phase: Phase, pod: &str, request: v1::HandleRequest) -> Self {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let turn = TURN.fetch_add(1, Ordering::SeqCst);
        script.log.send_modify(|log| {
            log.asked.push(HookCall { turn, phase, pod: pod.to_owned(), request, reply: None });
            log.open += 1;
            log.most_open = log.most_open.max(log.open);
        });
        Self { script, turn }
    }

    fn replied(&self, reply: HookReply) {
        self.script.log.send_modify(|log| {
            let of_turn = log.asked.iter_mut().find(|asked| asked.turn == self.turn);
            of_turn.into_iter().for_each(|asked| asked.reply = Some(reply));
        });
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.script.log.send_modify(|log| log.open -= 1);
    }
}

fn respond(reply: HookReply) -> Result<v1::HandleResponse, Status> {
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
        HookReply::Done => Ok(done(PROOF.to_owned())),
        HookReply::Pending => Ok(not_done(v1::Outcome::Pending, EXCUSE)),
        HookReply::Rejected(reason) => Ok(not_done(v1::Outcome::Rejected, reason)),
        HookReply::Fails(code) => Err(Status::new(code, "as the test wants it")),
        HookReply::Nothing | HookReply::Silent => Ok(v1::HandleResponse::default()),
        HookReply::Giant => Ok(done("x".repeat(1_000_000))),
    }
}
