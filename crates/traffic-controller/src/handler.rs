//! Answers calls.

mod traced;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::Phase;
use podward_proto::v1::hook_handler_server::HookHandler;
use podward_proto::v1::{HandleRequest, HandleResponse};
use podward_runtime::admin::Readiness;
use podward_runtime::authn::Authenticator;
use podward_runtime::grpc::timeout_of;
use podward_runtime::telemetry::traces::Spans;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::clock::{after, between};
use crate::hub::Hub;
use crate::in_flight::{InFlight, PORT_LABEL};
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::proxy::WATCHES;
use crate::scraper::Scraper;
use crate::verdict::{self, Flight, Nodes, Progress, ServiceOthers, Verdict, Waits};
use crate::world::{Facts, Owner};

use traced::Traced;
use wire::Asked;

/// How long a call is held open for what it waits for. Much less than calls may take (10 s), so that none ends in an error; and less
/// than a pod waits until it says for what (5 s), so that there is something to say.
const HOLD: Duration = Duration::from_secs(2);
/// What is left of a call's time for the way back.
const WAY_BACK: Duration = Duration::from_millis(500);
/// Past this many held calls the others are answered at once, so that no pod waits for another one's call.
const MOST_HELD: i64 = 192;
/// A held call looks at most this often: many changes may come at once.
const LOOK: Duration = Duration::from_millis(10);

/// See the module.
pub(crate) struct Handler {
    pub(crate) hub: Arc<Hub>,
    pub(crate) scraper: Option<Arc<Scraper>>,
    pub(crate) in_flight: InFlight,
    pub(crate) memory: Memory,
    pub(crate) waits: Waits,
    pub(crate) authenticator: Authenticator,
    /// The one who may ask.
    pub(crate) user: String,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) spans: Spans,
    pub(crate) stop: CancellationToken,
}

#[tonic::async_trait]
impl HookHandler for Handler {
    async fn handle(&self, request: Request<HandleRequest>) -> Result<Response<HandleResponse>, Status> {
        let caller = self.authenticator.authenticate(&request).await?;
        if caller.user != self.user {
            return Err(Status::permission_denied(format!(
                "only {} may ask, not {}; --controller-user says so",
                self.user, caller.user
            )));
        }
        let missing = self.readiness.missing();
        if !missing.is_empty() {
            return Err(Status::unavailable(format!("not known yet: {}; ask again", missing.join(", "))));
        }
        let patience = timeout_of(&request.metadata().clone().into_headers())?;
        let hold = patience.map_or(HOLD, |patience| HOLD.min(patience.saturating_sub(WAY_BACK)));
        let traced = Traced::begin(&self.spans, &request, self.hub.clock.now());
        let asked = Asked::try_from(request.into_inner())?;
        let verdict = self.answer(&asked, hold).await;
        let response = wire::response(&asked, verdict, self.hub.clock.now(), &self.metrics);
        if let Some(traced) = traced {
            traced.end(&response, self.hub.clock.now());
        }
        Ok(Response::new(response))
    }
}

/// Counts a call that is held open.
struct Held<'a>(&'a Metrics);

impl<'a> Held<'a> {
    fn new(metrics: &'a Metrics) -> Option<Self> {
        (metrics.held.inc() < MOST_HELD).then_some(Self(metrics)).or_else(|| {
            metrics.held.dec();
            None
        })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.dec();
    }
}

impl Handler {
    /// The answer, for which is waited no longer than `hold`.
    async fn answer(&self, asked: &Asked, hold: Duration) -> Verdict {
        let began = self.hub.clock.now();
        let end = after(began, hold);
        let mut changes = self.hub.changes();
        let mut flight = match asked.pod.labels.contains_key(PORT_LABEL) {
            true => Flight::Unknown,
            false => Flight::NotAsked,
        };
        let held = Held::new(&self.metrics);
        self.asked(asked, began);
        loop {
            changes.borrow_and_update();
            let now = self.hub.clock.now();
            let (verdict, progress) = self.look(asked, &flight, now);
            let Verdict::Pending { until, .. } = &verdict else {
                self.done(asked, &progress, now);
                return verdict;
            };
            if held.is_none() || now >= end || self.stop.is_cancelled() {
                return verdict;
            }
            let asks = flight != Flight::NotAsked && progress.taken_in.is_some();
            let pause = if asks { Some(after(now, WATCHES)) } else { *until };
            let wake = pause.map_or(end, |pause| pause.min(end));
            tokio::select! {
                () = tokio::time::sleep(between(now, wake).max(LOOK)) => {}
                _ = changes.changed() => tokio::time::sleep(LOOK).await,
                () = self.stop.cancelled() => {}
            }
            if asks {
                flight = self.in_flight.ask(&asked.pod, self.hub.clock).await;
            }
        }
    }

    fn asked(&self, asked: &Asked, now: UnixNanos) {
        match asked.phase {
            Phase::Prepare => self.memory.may_leave(&asked.pod.uid, now),
            Phase::Complete => self.memory.stays(&asked.pod.uid),
            _ => {}
        }
    }

    /// One look at what is known.
    fn look(&self, asked: &Asked, flight: &Flight, now: UnixNanos) -> (Verdict, Progress) {
        let facts = self.hub.world.lock().facts(&asked.pod);
        let waits = &self.waits;
        match asked.phase {
            Phase::Prepare => {
                let nodes = self.nodes(&facts);
                self.memory.question(&asked.question, now, |progress| {
                    let verdict = verdict::prepare(&facts, &nodes, flight, progress, waits, now);
                    (verdict, *progress)
                })
            }
            Phase::Complete => {
                (verdict::complete(&facts, &self.nodes(&facts), waits, now), Progress::default())
            }
            Phase::Release => (verdict::release(&facts, asked.opted_out), Progress::default()),
            Phase::PreCheck | Phase::PostCheck => {
                let others = self.others(asked, &facts, now);
                (verdict::pre_check(&others, waits, asked.at.unwrap_or(now), now), Progress::default())
            }
        }
    }

    fn nodes(&self, facts: &Facts) -> Nodes {
        self.scraper.as_ref().map_or(Nodes::Unread, |scraper| Nodes::Read(scraper.about(&facts.changed)))
    }

    fn others(&self, asked: &Asked, facts: &Facts, now: UnixNanos) -> Vec<ServiceOthers> {
        let leaves = |owner: &Owner| match owner {
            Owner::Pod(uid) => self.memory.is_leaving(uid, now),
            Owner::Address(..) => false,
        };
        let world = self.hub.world.lock();
        let holding = facts.services.iter().filter(|service| service.exists && service.ready.is_some());
        holding
            .map(|service| {
                let others = world.others(&service.key, &asked.pod, leaves);
                ServiceOthers { key: service.key.clone(), others }
            })
            .collect()
    }

    fn done(&self, asked: &Asked, progress: &Progress, now: UnixNanos) {
        match asked.phase {
            Phase::PreCheck => self.memory.may_leave(&asked.pod.uid, now),
            Phase::Prepare => {
                self.memory.leaves(&asked.pod.uid, now);
                self.memory.answered(&asked.question);
                let Some(out) = progress.out else { return };
                if let Some(at) = asked.at {
                    self.metrics.prepare_took("slices", between(at, out));
                }
                let taken_in = progress.taken_in.unwrap_or(out);
                self.metrics.prepare_took("proxies", between(out, taken_in));
                self.metrics.prepare_took("in-flight", between(taken_in, now));
            }
            _ => {}
        }
    }
}
