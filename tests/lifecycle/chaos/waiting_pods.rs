//! Pods that wait for a hook, one in each phase.

use anyhow::{Context, Result, ensure};
use futures::future::{try_join, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::DeleteParams};
use podward_core::{keys, keys::Stage};
use podward_e2e::Fixture;
use podward_proto::v1::Phase;
use podward_support::{Operator, pods};
use serde_json::json;

use crate::hooks::{
    script::{HookCallLog, HookReply},
    server::HookServer,
};

const CHECKING: &str = "checking";
const PREPARING: &str = "preparing";
const OPERATING: &str = "operating";
const JUDGED: &str = "judged";
const COMPLETING: &str = "completing";
const BORN: &str = "born";
const LEAVING: &str = "leaving";

/// The expected calls. There is no call for the pod that is being operated on.
const WAITING: [(&str, Phase); 6] = [
    (CHECKING, Phase::PreCheck),
    (PREPARING, Phase::Prepare),
    (JUDGED, Phase::PostCheck),
    (COMPLETING, Phase::Complete),
    (BORN, Phase::Complete),
    (LEAVING, Phase::Prepare),
];
/// The pods that are not deleted.
const STAYING: [&str; 6] = [CHECKING, PREPARING, OPERATING, JUDGED, COMPLETING, BORN];

/// The pods, their silent hook, and their operator.
pub(crate) struct HeldPods {
    hook: HookServer,
    operator: Operator,
    /// The UID of the pod that is being deleted.
    leaving: String,
}

impl HeldPods {
    pub(crate) async fn set_up(fixture: &Fixture) -> Result<Self> {
        let hook = HookServer::start(fixture, "chaos").await?;
        // The hook must not count as unreachable because it is silent here.
        let spec = json!({
            "phases": ["PreCheck", "Prepare", "PostCheck", "Complete", "Release"],
            "callTimeoutMilliseconds": 60_000,
        });
        hook.put_reachable(spec).await?;
        let old = || STAYING.into_iter().filter(|pod| *pod != BORN).chain([LEAVING]);
        try_join_all(old().map(|pod| fixture.create(pod))).await?;
        try_join_all(old().map(|pod| fixture.until_available(pod))).await?;
        let operator = fixture.operator("a", "update");
        for pod in [OPERATING, JUDGED, COMPLETING] {
            operator.begin(pod).await?;
        }
        for pod in [OPERATING, JUDGED, COMPLETING] {
            operator.await_operate(pod).await?;
        }
        let leaving =
            fixture.feed().get(LEAVING).and_then(|pod| pod.uid()).context("there is no pod to go")?;
        answer(&hook, HookReply::Silent);
        let before: Vec<usize> = WAITING.map(|(pod, phase)| hook.log().about(pod, phase).count()).into();
        operator.begin(CHECKING).await?;
        operator.begin(PREPARING).await?;
        operator.finish(JUDGED).await?;
        operator.finish(COMPLETING).await?;
        fixture.create(BORN).await?;
        let refused = fixture.api().delete(LEAVING, &DeleteParams::default()).await;
        let is_held = matches!(&refused, Err(kube::Error::Api(status)) if status.code == 429);
        ensure!(is_held, "the delete was not held: {refused:?}");
        for ((pod, phase), before) in WAITING.into_iter().zip(before) {
            let what = format!("the hook to be asked {phase:?} about pod {pod}");
            hook.until(&what, |log| log.about(pod, phase).count() > before).await?;
        }
        Ok(Self { hook, operator, leaving })
    }

    /// Returns the pods for which the hook is called.
    pub(crate) fn waiting() -> [&'static str; 6] {
        WAITING.map(|(pod, _)| pod)
    }

    /// Returns their hook.
    pub(crate) fn hook(&self) -> &HookServer {
        &self.hook
    }

    /// Sets the hook's answer for all of them.
    pub(crate) fn answer(&self, reply: HookReply) {
        answer(&self.hook, reply);
    }

    /// Returns the number of calls for each pod so far.
    pub(crate) fn counts(&self) -> Vec<usize> {
        let log = self.hook.log();
        WAITING.map(|(pod, phase)| log.about(pod, phase).count()).into()
    }

    /// Waits until there was another call for each pod since `counts`.
    pub(crate) async fn until_called_again(&self, counts: &[usize]) -> Result<()> {
        for ((pod, phase), before) in WAITING.into_iter().zip(counts) {
            let what = format!("the hook to be asked {phase:?} about pod {pod} again");
            self.hook.until(&what, |log| log.about(pod, phase).count() > *before).await?;
        }
        Ok(())
    }

    /// Checks that no pod has continued without the hook.
    pub(crate) fn ensure_held(&self, fixture: &Fixture) -> Result<()> {
        let get = |name| fixture.feed().get(name).with_context(|| format!("pod {name} is gone"));
        let has = |pod: &Pod, stage| self.operator.has(pod, stage);
        for name in [CHECKING, PREPARING, LEAVING] {
            let pod = get(name)?;
            ensure!(!has(&pod, Stage::Operate), "pod {name} has its permission: {}", pods::describe(&pod));
            let holds = pods::holders(&pod).any(|finalizer| finalizer == self.hook.finalizer());
            ensure!(holds, "the hook has lost pod {name}: {}", pods::describe(&pod));
        }
        ensure!(has(&*get(OPERATING)?, Stage::Operate), "the permission is lost");
        ensure!(!has(&*get(JUDGED)?, Stage::PostChecked), "the result was taken");
        for name in [COMPLETING, BORN] {
            ensure!(!pods::is_available(&*get(name)?), "pod {name} is available without its hook");
        }
        ensure!(get(LEAVING)?.metadata.deletion_timestamp.is_none(), "the pod goes while it is held");
        Ok(())
    }

    /// Lets the hook and the operator finish. Everything ends, and nothing is left.
    pub(crate) async fn go_on(&self, fixture: &Fixture) -> Result<()> {
        self.hook.answer_all(HookReply::Done);
        self.end(fixture, &STAYING, true).await
    }

    /// Lets the hook finish for some of them.
    pub(crate) async fn some_go_on(&self, fixture: &Fixture) -> Result<()> {
        for (pod, phase) in WAITING.into_iter().filter(|(pod, _)| self::some().contains(pod)) {
            self.hook.answer_about(pod, phase, HookReply::Done);
        }
        self.end(fixture, &some(), false).await
    }

    /// Lets the hook finish for the others.
    pub(crate) async fn others_go_on(&self, fixture: &Fixture) -> Result<()> {
        self.hook.answer_all(HookReply::Done);
        let others: Vec<&str> = STAYING.into_iter().filter(|pod| !some().contains(pod)).collect();
        self.end(fixture, &others, true).await?;
        self.ensure_nothing_left(fixture, &STAYING).await
    }

    async fn end(&self, fixture: &Fixture, staying: &[&str], goes: bool) -> Result<()> {
        let operator = &self.operator;
        let work = staying.iter().map(async |pod| {
            if [CHECKING, PREPARING, OPERATING].contains(pod) {
                operator.await_operate(pod).await?;
                operator.finish(pod).await?;
            }
            operator.await_end(pod).await
        });
        let is_gone = |pods: &[&Pod]| !pods.iter().any(|pod| pod.name_any() == LEAVING);
        let gone = async {
            if goes {
                fixture.feed().until_pods("the pod that was to go is gone", is_gone).await?;
            }
            Ok(())
        };
        try_join(try_join_all(work), gone).await?;
        self.ensure_nothing_left(fixture, staying).await?;
        if goes { self.ensure_released(fixture) } else { Ok(()) }
    }

    /// Checks that the pods have only the finalizer of their hook and what belongs to it.
    async fn ensure_nothing_left(&self, fixture: &Fixture, staying: &[&str]) -> Result<()> {
        for pod in staying {
            let is_clean = |pod: &Pod| {
                let is_asked = pod.annotations().contains_key(keys::HOOK_REQUESTS);
                pods::is_available(pod) && pods::holders(pod).eq([self.hook.finalizer()]) && !is_asked
            };
            fixture.feed().until(pod, "nothing but its hook's finalizer is left on it", is_clean).await?;
        }
        Ok(())
    }

    /// Checks that the deleted pod was deleted after its hook had released it.
    fn ensure_released(&self, fixture: &Fixture) -> Result<()> {
        let let_go = |log: &HookCallLog| {
            log.about(LEAVING, Phase::Prepare).any(|asked| {
                asked.reply == Some(HookReply::Done)
                    && asked.request.pod.as_ref().is_some_and(|pod| pod.uid == self.leaving)
            })
        };
        ensure!(let_go(&self.hook.log()), "the pod is gone, and its hook had not drained it");
        let histories = fixture.timeline().histories();
        for history in &histories {
            // A watch that listed again may have missed the version.
            if let Some(dying) = history.deletion() {
                ensure!(dying.holders.is_empty(), "pod {} was deleted while held: {dying:?}", history.name);
                ensure!(history.uid == self.leaving, "pod {} was deleted without a request", history.name);
            }
        }
        Ok(())
    }
}

fn answer(hook: &HookServer, reply: HookReply) {
    WAITING.into_iter().for_each(|(pod, phase)| hook.answer_about(pod, phase, reply));
}

/// Returns half of the pods that are not deleted.
fn some() -> [&'static str; 3] {
    [CHECKING, COMPLETING, OPERATING]
}
