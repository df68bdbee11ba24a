//! Processes of Podward are killed in random order and at random times, while pods are operated on, cancelled,
//! deleted and created.

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
use podward_e2e::{Fixture, Test};
use podward_proto::v1::Phase;
use podward_support::{ServiceKind, WAIT, pods, timeline::PodHistory, within};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    deletion::objects::is_delete_requested,
    hooks::{script::HookReply, server::HookServer},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::alone("chaos_storm", storm)]
}

/// The number of processes that are killed, one after the other.
const KILLS: usize = 8;
/// The minimum number of rounds of each worker, even if the kills are over before.
const ROUNDS: usize = 3;
/// The interval at which a rejected request is tried again.
const POLL: Duration = Duration::from_millis(200);

/// The operators and their pods. Some pods have two at a time.
const OPERATORS: [(&str, &str); 5] =
    [("a", "web-0"), ("a", "web-1"), ("b", "web-1"), ("b", "web-2"), ("c", "web-2")];
const STAYING: [&str; 3] = ["web-0", "web-1", "web-2"];
const LEAVING: [&str; 2] = ["gone-0", "gone-1"];

async fn storm(fixture: Arc<Fixture>) -> Result<()> {
    let hook = HookServer::start(&fixture, "storm").await?;
    hook.put_reachable(json!({"phases": ["Prepare", "Complete", "Release"]})).await?;
    // The first answer is never DONE, so that many calls are pending at any time.
    hook.answer(Phase::Prepare, HookReply::Pending);
    let traffic = fixture.traffic();
    fixture.in_service(STAYING).await?;

    let seed = fastrand::u64(..);
    let (over, is_over) = watch::channel(false);
    let kills = async {
        let killed = kill_one_after_the_other(&fixture, seed).await;
        over.send_replace(true);
        killed
    };
    let finished = AtomicUsize::new(0);
    let operators = OPERATORS.iter().enumerate().map(|(number, (id, pod))| {
        let chance = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
        operate(&fixture, id, pod, chance, is_over.clone(), &finished)
    });
    let deleters = LEAVING.iter().map(|pod| delete(&fixture, pod, is_over.clone()));
    let patience = release_after_a_while(&hook, is_over.clone());
    // It goes on after a failure, because killed processes have to be started again.
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
        fixture
            .feed()
            .until(name, "it is in service, held by those who hold it, and nothing else is left", is_clean)
            .await?;
    }
    ensure_released(&fixture).await
}

/// Checks that no pod was deleted before everyone who held it had released it, whatever was the answer to the request.
async fn ensure_released(fixture: &Fixture) -> Result<()> {
    fixture.timeline().catch_up().await?;
    let histories = fixture.timeline().histories();
    for name in LEAVING {
        let all = histories.iter().filter(|history| history.name == name);
        let dying: Vec<_> = all.filter_map(PodHistory::deletion).collect();
        ensure!(dying.len() >= ROUNDS, "only {} deletions of pod {name} were recorded", dying.len());
        let held = dying.into_iter().find(|version| !version.holders.is_empty());
        ensure!(held.is_none(), "pod {name} was deleted while it was held: {held:?}");
    }
    Ok(())
}

/// Kills a random process, then another one, and so on. Each is started again at once.
async fn kill_one_after_the_other(fixture: &Fixture, seed: u64) -> Result<()> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let podward = fixture.podward()?;
    let mut services = podward.services(ServiceKind::LifecycleController);
    services.extend(podward.webhooks());
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(chance.u64(200..1500))).await;
        let victim = chance.choice(&services).context("there is no process to kill")?;
        victim.kill().await?;
        victim.start().await?;
    }
    podward.until_webhooks_are_called().await
}

/// Lets the hook hold everything for a moment, then release it, and so on.
async fn release_after_a_while(hook: &HookServer, mut is_over: watch::Receiver<bool>) {
    for reply in [HookReply::Done, HookReply::Pending].into_iter().cycle() {
        if *is_over.borrow_and_update() {
            break;
        }
        hook.answer(Phase::Prepare, reply);
        drop(tokio::time::timeout(Duration::from_millis(700), is_over.changed()).await);
    }
    hook.answer(Phase::Prepare, HookReply::Done);
}

/// Operates on the pod again and again, and sometimes cancels.
async fn operate(
    fixture: &Fixture,
    id: &str,
    pod: &str,
    mut chance: fastrand::Rng,
    is_over: watch::Receiver<bool>,
    finished: &AtomicUsize,
) -> Result<()> {
    let operator = fixture.operator(id, "update");
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
        // Other operators may work on the pod, so it need not be available in between.
        let is_mine_over = |pod: &Pod| {
            !Stage::OURS.iter().any(|stage| operator.has(pod, *stage)) && !operator.has(pod, Stage::Operating)
        };
        fixture.feed().until(pod, &format!("operation {id} is over"), is_mine_over).await?;
    }
    Ok(())
}

/// Creates a pod, waits until it is available, and deletes it, again and again.
async fn delete(fixture: &Fixture, name: &str, is_over: watch::Receiver<bool>) -> Result<()> {
    let mut rounds = 0;
    while rounds < ROUNDS || !*is_over.borrow() {
        rounds += 1;
        until_made(fixture, name).await?;
        fixture.until_available(name).await?;
        until_requested(fixture, name).await?;
        let is_gone = |pods: &[&Pod]| pods.iter().all(|pod| pod.name_any() != name);
        fixture.feed().until_pods(&format!("pod {name} is gone"), is_gone).await?;
    }
    Ok(())
}

/// Creates the pod. While no mutating-webhook responds, the API server rejects pods that are opted in.
async fn until_made(fixture: &Fixture, name: &str) -> Result<()> {
    let made = async {
        while fixture.create(name).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(WAIT, || format!("pod {name} to be made"), made).await
}

/// Deletes the pod again and again until the deletion request is recorded. While no webhook responds, the API server
/// rejects deletes.
async fn until_requested(fixture: &Fixture, name: &str) -> Result<()> {
    let requested = async {
        loop {
            match fixture.api().delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code != 404 => {}
                Err(kube::Error::Api(_)) | Ok(_) => return Ok(()),
                Err(error) => return Err(error).with_context(|| format!("delete pod {name}")),
            }
            if fixture.feed().get(name).is_none_or(|pod| is_delete_requested(&pod)) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    };
    within(WAIT, || format!("the deletion request of pod {name}"), requested).await
}
