//! Pods in each phase of an operation, for tests that take something away from under them.

use anyhow::Result;
use podward_core::{ConditionStatus, keys::Stage};
use podward_e2e::Scene;
use podward_support::{Behaviour, Operator, TrafficLoop, pods};

/// Pods that wait for this test in every phase.
pub(crate) struct Phases {
    traffic: TrafficLoop,
    a: Operator,
    b: Operator,
    /// Begins after the loss: goes through all phases without what was lost.
    idle: String,
    /// Begins after the loss, and is cancelled at once.
    cancelled: String,
    preparing: String,
    /// As the last, and is cancelled instead of let go.
    unprepared: String,
    operating: String,
    waiting: String,
    completing: String,
}

impl Phases {
    /// Brings a pod into each phase that can be held from outside. The pods' names begin with `prefix`.
    pub(crate) async fn set_up(scene: &Scene, prefix: &str) -> Result<Self> {
        let name = |phase: &str| format!("{prefix}-{phase}");
        let phases = Self {
            traffic: scene.traffic(),
            a: scene.operator("a", "update"),
            b: scene.operator("b", "restart"),
            idle: name("idle"),
            cancelled: name("cancelled"),
            preparing: name("preparing"),
            unprepared: name("unprepared"),
            operating: name("operating"),
            waiting: name("waiting"),
            completing: name("completing"),
        };
        scene.in_service(phases.pods()).await?;
        phases.hold(scene).await?;
        Ok(phases)
    }

    fn pods(&self) -> [&str; 7] {
        let Self { idle, cancelled, preparing, unprepared, operating, waiting, completing, .. } = self;
        [idle, cancelled, preparing, unprepared, operating, waiting, completing]
    }

    async fn hold(&self, scene: &Scene) -> Result<()> {
        let Self { traffic, a, b, preparing, unprepared, operating, waiting, completing, .. } = self;
        for pod in [preparing, unprepared] {
            traffic.behave_towards(pod, Behaviour::HOLDS);
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
        traffic.behave_towards(completing, Behaviour::KEEPS_OUT);
        a.finish(completing).await?;
        a.await_stage(completing, Stage::Completing).await?;
        for pod in [preparing, unprepared] {
            let is_out = |pod: &_| {
                a.has(pod, Stage::Preparing) && pods::view(pod).gate == Some(ConditionStatus::False)
            };
            scene.feed().until(pod, "it is out of service and held", is_out).await?;
        }
        Ok(())
    }

    /// Everybody goes on; every operation has to come to its end.
    pub(crate) async fn go_on(&self, scene: &Scene) -> Result<()> {
        let Self { traffic, a, b, idle, cancelled, preparing, unprepared, operating, waiting, completing } =
            self;
        a.begin(idle).await?;
        a.begin(cancelled).await?;
        a.undo(cancelled).await?;
        for pod in [preparing, completing] {
            traffic.behave_towards(pod, Behaviour::PROMPT);
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
            scene.feed().until(pod, "its consumer has taken it in", sends).await?;
        }
        scene.timeline().verify(true).await.map(drop)
    }
}
