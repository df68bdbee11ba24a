//! Pods that wait for a hook, one in each phase.

use anyhow::{Context, Result, ensure};
use futures::future::{try_join, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::DeleteParams};
use podward_core::{keys, keys::Stage};
use podward_e2e::Scene;
use podward_proto::v1::Phase;
use podward_support::{Operator, pods};
use serde_json::json;

use crate::hooks::{
    script::{Log, Reply},
    server::HookServer,
};

const CHECKING: &str = "checking";
const PREPARING: &str = "preparing";
const OPERATING: &str = "operating";
const JUDGED: &str = "judged";
const COMPLETING: &str = "completing";
const BORN: &str = "born";
const LEAVING: &str = "leaving";

/// Who is asked what; nothing is asked about the pod that is worked on.
const WAITING: [(&str, Phase); 6] = [
    (CHECKING, Phase::PreCheck),
    (PREPARING, Phase::Prepare),
    (JUDGED, Phase::PostCheck),
    (COMPLETING, Phase::Complete),
    (BORN, Phase::Complete),
    (LEAVING, Phase::Prepare),
];
/// Those that stay.
const STAYING: [&str; 6] = [CHECKING, PREPARING, OPERATING, JUDGED, COMPLETING, BORN];

/// The pods, their hook, which is asked about each and keeps silent, and their operator.
pub(crate) struct Held {
    hook: HookServer,
    operator: Operator,
    /// UID of the pod that is to go.
    leaving: String,
}

impl Held {
    pub(crate) async fn set_up(scene: &Scene) -> Result<Self> {
        let hook = HookServer::start(scene, "chaos").await?;
        // Nobody is to be taken for dead just because it keeps silent here.
        let spec = json!({
            "phases": ["PreCheck", "Prepare", "PostCheck", "Complete", "Release"],
            "callTimeoutMilliseconds": 60_000,
        });
        hook.put_reachable(spec).await?;
        let old = || STAYING.into_iter().filter(|pod| *pod != BORN).chain([LEAVING]);
        try_join_all(old().map(|pod| scene.create(pod))).await?;
        try_join_all(old().map(|pod| scene.until_available(pod))).await?;
        let operator = scene.operator("a", "update");
        for pod in [OPERATING, JUDGED, COMPLETING] {
            operator.begin(pod).await?;
        }
        for pod in [OPERATING, JUDGED, COMPLETING] {
            operator.await_operate(pod).await?;
        }
        let leaving = scene.feed().get(LEAVING).and_then(|pod| pod.uid()).context("there is no pod to go")?;
        answer(&hook, Reply::Silent);
        let before: Vec<usize> = WAITING.map(|(pod, phase)| hook.log().about(pod, phase).count()).into();
        operator.begin(CHECKING).await?;
        operator.begin(PREPARING).await?;
        operator.finish(JUDGED).await?;
        operator.finish(COMPLETING).await?;
        scene.create(BORN).await?;
        let refused = scene.api().delete(LEAVING, &DeleteParams::default()).await;
        let is_held = matches!(&refused, Err(kube::Error::Api(status)) if status.code == 429);
        ensure!(is_held, "the delete was not held: {refused:?}");
        for ((pod, phase), before) in WAITING.into_iter().zip(before) {
            let what = format!("the hook to be asked {phase:?} about pod {pod}");
            hook.until(&what, |log| log.about(pod, phase).count() > before).await?;
        }
        Ok(Self { hook, operator, leaving })
    }

    /// The pods about which the hook is asked.
    pub(crate) fn waiting() -> [&'static str; 6] {
        WAITING.map(|(pod, _)| pod)
    }

    /// Their hook.
    pub(crate) fn hook(&self) -> &HookServer {
        &self.hook
    }

    /// From now on the hook answers so, about all of them.
    pub(crate) fn answer(&self, reply: Reply) {
        answer(&self.hook, reply);
    }

    /// How often each was asked about so far.
    pub(crate) fn counts(&self) -> Vec<usize> {
        let log = self.hook.log();
        WAITING.map(|(pod, phase)| log.about(pod, phase).count()).into()
    }

    /// Waits until each was asked about again since `counts`.
    pub(crate) async fn until_asked_again(&self, counts: &[usize]) -> Result<()> {
        for ((pod, phase), before) in WAITING.into_iter().zip(counts) {
            let what = format!("the hook to be asked {phase:?} about pod {pod} again");
            self.hook.until(&what, |log| log.about(pod, phase).count() > *before).await?;
        }
        Ok(())
    }

    /// Nobody has gone on without the hook.
    pub(crate) fn ensure_held(&self, scene: &Scene) -> Result<()> {
        let get = |name| scene.feed().get(name).with_context(|| format!("pod {name} is gone"));
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

    /// The hook does what it should, the operator too; everything comes to its end, and nothing is left.
    pub(crate) async fn go_on(&self, scene: &Scene) -> Result<()> {
        self.hook.answer_all(Reply::Done);
        self.end(scene, &STAYING, true).await
    }

    /// The same for some of them alone.
    pub(crate) async fn some_go_on(&self, scene: &Scene) -> Result<()> {
        for (pod, phase) in WAITING.into_iter().filter(|(pod, _)| self::some().contains(pod)) {
            self.hook.answer_about(pod, phase, Reply::Done);
        }
        self.end(scene, &some(), false).await
    }

    /// And then for the others.
    pub(crate) async fn others_go_on(&self, scene: &Scene) -> Result<()> {
        self.hook.answer_all(Reply::Done);
        let others: Vec<&str> = STAYING.into_iter().filter(|pod| !some().contains(pod)).collect();
        self.end(scene, &others, true).await?;
        self.ensure_nothing_left(scene, &STAYING).await
    }

    async fn end(&self, scene: &Scene, staying: &[&str], goes: bool) -> Result<()> {
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
                scene.feed().until_pods("the pod that was to go is gone", is_gone).await?;
            }
            Ok(())
        };
        try_join(try_join_all(work), gone).await?;
        self.ensure_nothing_left(scene, staying).await?;
        if goes { self.ensure_let_go(scene) } else { Ok(()) }
    }

    /// Nothing is on the pods but the finalizer of their hook, and what belongs to it.
    async fn ensure_nothing_left(&self, scene: &Scene, staying: &[&str]) -> Result<()> {
        for pod in staying {
            let is_clean = |pod: &Pod| {
                let is_asked = pod.annotations().contains_key(keys::ASKED);
                pods::is_available(pod) && pods::holders(pod).eq([self.hook.finalizer()]) && !is_asked
            };
            scene.feed().until(pod, "nothing but its hook's finalizer is left on it", is_clean).await?;
        }
        Ok(())
    }

    /// The pod that went did so after its hook had let go of it.
    fn ensure_let_go(&self, scene: &Scene) -> Result<()> {
        let let_go = |log: &Log| {
            log.about(LEAVING, Phase::Prepare).any(|asked| {
                asked.reply == Some(Reply::Done)
                    && asked.request.pod.as_ref().is_some_and(|pod| pod.uid == self.leaving)
            })
        };
        ensure!(let_go(&self.hook.log()), "the pod went, and its hook had not let go of it");
        let histories = scene.timeline().histories();
        for history in &histories {
            // A watch that had to list anew may have missed the version.
            if let Some(dying) = history.versions.iter().find(|version| version.terminating) {
                ensure!(dying.holders.is_empty(), "pod {} was deleted while held: {dying:?}", history.name);
                ensure!(
                    history.uid == self.leaving,
                    "pod {} was deleted, and nobody wished it",
                    history.name
                );
            }
        }
        Ok(())
    }
}

fn answer(hook: &HookServer, reply: Reply) {
    WAITING.into_iter().for_each(|(pod, phase)| hook.answer_about(pod, phase, reply));
}

/// Half of those that stay.
fn some() -> [&'static str; 3] {
    [CHECKING, COMPLETING, OPERATING]
}
