//! Pods in each phase of an operation, for tests of outages.

use anyhow::Result;
use podward_core::{ConditionStatus, keys::Stage};
use podward_e2e::Fixture;
use podward_support::{Operator, TrafficBehaviour, TrafficLoop, pods};

/// Pods that wait in every phase for the test.
pub(crate) struct Phases {
    traffic: TrafficLoop,
    a: Operator,
    b: Operator,
    /// Begins after the loss and goes through all phases without what was lost.
    idle: String,
    /// Begins after the loss, and is cancelled at once.
    cancelled: String,
    preparing: String,
    /// Like the one before, and is cancelled instead of released.
    unprepared: String,
    operating: String,
    waiting: String,
    completing: String,
}

impl Phases {
    /// Brings a pod into each phase that can be held from outside. The pods' names begin with `prefix`.
    pub(crate) async fn set_up(fixture: &Fixture, prefix: &str) -> Result<Self> {
        let name = |phase: &str| format!("{prefix}-{phase}");
        let phases = Self {
            traffic: fixture.traffic(),
            a: fixture.operator("a", "update"),
            b: fixture.operator("b", "restart"),
            idle: name("idle"),
            cancelled: name("cancelled"),
            preparing: name("preparing"),
            unprepared: name("unprepared"),
            operating: name("operating"),
            waiting: name("waiting"),
            completing: name("completing"),
        };
        fixture.in_service(phases.pods()).await?;
        phases.hold(fixture).await?;
        Ok(phases)
    }

    fn pods(&self) -> [&str; 7] {
        let Self { idle, cancelled, preparing, unprepared, operating, waiting, completing, .. } = self;
        [idle, cancelled, preparing, unprepared, operating, waiting, completing]
    }

    async fn hold(&self, fixture: &Fixture) -> Result<()> {
        let Self { traffic, a, b, preparing, unprepared, operating, waiting, completing, .. } = self;
        for pod in [preparing, unprepared] {
            traffic.set_behaviour_for(pod, TrafficBehaviour::NOT_DRAINED);
            a.begin(pod).await?;
        }
        for pod in [operating, waiting, completing] {
            a.begin(pod).await?;
        }
        b.begin(waiting).await?;
        tokio::try_join!(
            a.await_operate(operating),
            a.await_operate(waiting),
            b.await_operate(waiting),
            a.await_operate(completing),
        )?;
        a.finish(waiting).await?;
        traffic.set_behaviour_for(completing, TrafficBehaviour::NOT_ADDED);
        a.finish(completing).await?;
        a.await_stage(completing, Stage::Completing).await?;
        for pod in [preparing, unprepared] {
            let is_out = |pod: &_| {
                a.has(pod, Stage::Preparing) && pods::view(pod).gate == Some(ConditionStatus::False)
            };
            fixture.feed().until(pod, "it is out of service and held", is_out).await?;
        }
        Ok(())
    }

    /// Lets everything continue. Every operation has to end.
    pub(crate) async fn go_on(&self, fixture: &Fixture) -> Result<()> {
        let Self { traffic, a, b, idle, cancelled, preparing, unprepared, operating, waiting, completing } =
            self;
        a.begin(idle).await?;
        a.begin(cancelled).await?;
        a.undo(cancelled).await?;
        for pod in [preparing, completing] {
            traffic.set_behaviour_for(pod, TrafficBehaviour::PROMPT);
        }
        a.undo(unprepared).await?;
        a.finish(operating).await?;
        b.finish(waiting).await?;
        let work = async |pod: &str| {
            a.await_operate(pod).await?;
            a.finish(pod).await
        };
        tokio::try_join!(work(idle), work(preparing))?;
        for pod in self.pods() {
            a.await_end(pod).await?;
            b.await_end(pod).await?;
            let sends = |_: &_| traffic.sends_traffic_to(pod);
            fixture.feed().until(pod, "its consumer has taken it in", sends).await?;
        }
        fixture.timeline().verify(true).await.map(drop)
    }
}
