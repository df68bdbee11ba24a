//! Processes of Podward are killed in any order and at any moment, while pods are worked on, given up, deleted and made anew.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::future::{join_all, join4};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::DeleteParams};
use podward_core::keys::Stage;
use podward_e2e::{Scene, Test};
use podward_proto::v1::Phase;
use podward_support::{Kind, WAIT, pods, within};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    deletion::made::is_wished,
    hooks::{script::Reply, server::HookServer},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::alone("chaos_storm", storm)]
}

/// Processes that are killed, one after the other.
const KILLS: usize = 8;
/// So many rounds each of those who work on pods does at least, also when the storm is over before.
const ROUNDS: usize = 3;
/// How often somebody who was refused asks again.
const POLL: Duration = Duration::from_millis(200);

/// Who works on which pod; some pods have two at once.
const OPERATORS: [(&str, &str); 5] =
    [("a", "web-0"), ("a", "web-1"), ("b", "web-1"), ("b", "web-2"), ("c", "web-2")];
const STAYING: [&str; 3] = ["web-0", "web-1", "web-2"];
const LEAVING: [&str; 2] = ["gone-0", "gone-1"];

async fn storm(scene: Arc<Scene>) -> Result<()> {
    let hook = HookServer::start(&scene, "storm").await?;
    hook.put_reachable(json!({"phases": ["Prepare", "Complete", "Release"]})).await?;
    // It is never done the first time, so that much is under way at any moment.
    hook.answer(Phase::Prepare, Reply::Pending);
    let traffic = scene.traffic();
    scene.in_service(STAYING).await?;

    let seed = fastrand::u64(..);
    let (over, is_over) = watch::channel(false);
    let kills = async {
        let killed = kill_one_after_the_other(&scene, seed).await;
        over.send_replace(true);
        killed
    };
    let finished = AtomicUsize::new(0);
    let operators = OPERATORS.iter().enumerate().map(|(number, (id, pod))| {
        let chance = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
        operate(&scene, id, pod, chance, is_over.clone(), &finished)
    });
    let deleters = LEAVING.iter().map(|pod| delete(&scene, pod, is_over.clone()));
    let patience = let_go_after_a_while(&hook, is_over.clone());
    // To the end, whoever fails: what was killed is to be started again.
    let (killed, operated, deleted, ()) =
        join4(kills, join_all(operators), join_all(deleters), patience).await;
    let outcomes = operated.into_iter().chain(deleted).chain([killed]);
    outcomes.collect::<Result<()>>().with_context(|| format!("in the storm with seed {seed}"))?;
    ensure!(finished.load(Ordering::SeqCst) > 0, "no operation went to its end");

    for name in STAYING {
        let is_clean = |pod: &Pod| {
            let mut holders: Vec<String> = pods::holders(pod).map(ToOwned::to_owned).collect();
            holders.sort();
            let mut expected = vec![hook.finalizer(), traffic.finalizer().to_owned()];
            expected.sort();
            pods::is_available(pod) && holders == expected
        };
        scene
            .feed()
            .until(name, "it is in service, held by those who hold it, and nothing else is left", is_clean)
            .await?;
    }
    Ok(())
}

/// Any process, then after a moment another one; each is started again at once.
async fn kill_one_after_the_other(scene: &Scene, seed: u64) -> Result<()> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let podward = scene.podward()?;
    let mut services = podward.services(Kind::LifecycleController);
    services.extend(podward.webhooks());
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(chance.u64(200..1500))).await;
        let victim = chance.choice(&services).context("there is nobody to kill")?;
        victim.kill().await?;
        victim.start().await?;
    }
    podward.until_webhooks_are_asked().await
}

/// The hook holds everything for a moment, then lets it go, and so on.
async fn let_go_after_a_while(hook: &HookServer, mut is_over: watch::Receiver<bool>) {
    for reply in [Reply::Done, Reply::Pending].into_iter().cycle() {
        if *is_over.borrow_and_update() {
            break;
        }
        hook.answer(Phase::Prepare, reply);
        drop(tokio::time::timeout(Duration::from_millis(700), is_over.changed()).await);
    }
    hook.answer(Phase::Prepare, Reply::Done);
}

/// Operates the pod again and again; now and then gives up in the middle.
async fn operate(
    scene: &Scene,
    id: &str,
    pod: &str,
    mut chance: fastrand::Rng,
    is_over: watch::Receiver<bool>,
    finished: &AtomicUsize,
) -> Result<()> {
    let operator = scene.operator(id, "update");
    let mut rounds = 0;
    while rounds < ROUNDS || !*is_over.borrow() {
        rounds += 1;
        operator.begin(pod).await?;
        if chance.u8(..3) == 0 {
            tokio::time::sleep(Duration::from_millis(chance.u64(..1000))).await;
            operator.undo(pod).await?;
        } else {
            operator.await_operate(pod).await?;
            tokio::time::sleep(Duration::from_millis(chance.u64(..300))).await;
            operator.finish(pod).await?;
            finished.fetch_add(1, Ordering::SeqCst);
        }
        // Others may be at work on the pod, so it needn't come into service in between.
        let is_mine_over = |pod: &Pod| {
            !Stage::OURS.iter().any(|stage| operator.has(pod, *stage)) && !operator.has(pod, Stage::Operating)
        };
        scene.feed().until(pod, &format!("operation {id} is over"), is_mine_over).await?;
    }
    Ok(())
}

/// Makes a pod, has it taken into service, and deletes it, again and again.
async fn delete(scene: &Scene, name: &str, is_over: watch::Receiver<bool>) -> Result<()> {
    let mut rounds = 0;
    while rounds < ROUNDS || !*is_over.borrow() {
        rounds += 1;
        until_made(scene, name).await?;
        scene.until_available(name).await?;
        until_wished(scene, name).await?;
        let is_gone = |pods: &[&Pod]| pods.iter().all(|pod| pod.name_any() != name);
        scene.feed().until_pods(&format!("pod {name} is gone"), is_gone).await?;
    }
    Ok(())
}

/// Makes the pod. While no mutating-webhook answers, the API server refuses those that have opted in.
async fn until_made(scene: &Scene, name: &str) -> Result<()> {
    let made = async {
        while scene.create(name).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(WAIT, || format!("pod {name} to be made"), made).await
}

/// Asks until the wish stands on the pod. While nobody answers for Podward, the API server refuses.
async fn until_wished(scene: &Scene, name: &str) -> Result<()> {
    let wished = async {
        loop {
            match scene.api().delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code != 404 => {}
                Err(kube::Error::Api(_)) | Ok(_) => return Ok(()),
                Err(error) => return Err(error).with_context(|| format!("delete pod {name}")),
            }
            if scene.feed().get(name).is_none_or(|pod| is_wished(&pod)) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    };
    within(WAIT, || format!("the wish to delete pod {name} to be on record"), wished).await
}
