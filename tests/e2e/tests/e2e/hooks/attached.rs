//! Hook systems that can't accept connections: they attach.

mod system;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::Api;
use podward_api::LifecycleHook;
use podward_core::keys::Stage;
use podward_e2e::{NAMESPACE_NAME, Scene, Service, Test};
use podward_proto::v1::{self, Phase, hook::Connection};
use podward_support::{Kind, pods};

use crate::controllers::leader;

use self::system::AttachedSystem;
use super::{
    registry::Registry,
    script::{PROOF, Reply},
    server::{has, unique, until_status},
    told::{evidence, until_counted},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("hook_attached", |scene| attached(scene, false)),
        Test::node("hook_attached_by_relay", |scene| attached(scene, true)),
        Test::alone("hook_attached_across_leaders", attached_across_leaders),
    ]
}

/// Registers a hook that attaches, for all pods of the test's namespace.
async fn register(scene: &Scene, registry: &Registry, name: &str) -> Result<String> {
    let name = unique(name);
    let hook = v1::Hook {
        name: name.clone(),
        namespace_selector: Some(v1::LabelSelector {
            match_labels: [(NAMESPACE_NAME.to_owned(), scene.namespace().to_owned())].into(),
            match_expressions: Vec::new(),
        }),
        phases: [Phase::Prepare, Phase::Complete, Phase::Release].map(Into::into).to_vec(),
        connection: Some(Connection::Attachment(v1::Attachment {})),
        ..v1::Hook::default()
    };
    registry
        .client()?
        .register(v1::RegisterRequest { hook: Some(hook) })
        .await
        .context("register the hook")?;
    Ok(name)
}

/// The replicas, the one that leads first, or last.
async fn replicas(scene: &Scene, leader_first: bool) -> Result<Vec<Service>> {
    let leader = leader(scene).await?;
    let mut all = scene.podward()?.services(Kind::LifecycleController);
    all.sort_by_key(|service| (service.name() == leader.name()) != leader_first);
    Ok(all)
}

async fn attached(scene: Arc<Scene>, by_relay: bool) -> Result<()> {
    let registry = Registry::of(&scene).await?;
    let name = register(&scene, &registry, "attached").await?;
    let hooks: Api<LifecycleHook> = Api::all(scene.client());
    let nobody_is = |status: &_| has(status, "Reachable", "False") && status.last_error.is_some();
    until_status(&hooks, &name, "nobody is attached", nobody_is).await?;
    let replica = replicas(&scene, !by_relay).await?.swap_remove(0);
    let system = AttachedSystem::start(&registry, &[replica], &name).await?;
    system.until_attached(1).await?;
    until_status(&hooks, &name, "it is attached", |status| has(status, "Reachable", "True")).await?;

    scene.create("web").await?;
    scene.until_available("web").await?;
    system.answer(Phase::Prepare, Reply::Pending);
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    let question = system.until_asked("web", Phase::Prepare).await?;
    ensure!(question.request.hook_name == name, "asked as {:?}", question.request.hook_name);
    // Answers to what was not asked are for nobody.
    system.babble().await?;
    until_counted(&scene, "podward_hook_answers_ignored_total", &[&name]).await?;
    system.until_asked_again("web", Phase::Prepare, 2).await?;
    let pod = scene.feed().get("web").context("there is no pod web")?;
    ensure!(
        !operator.has(&pod, Stage::Operate),
        "an answer to no question counted: {}",
        pods::describe(&pod)
    );
    system.answer(Phase::Prepare, Reply::Done);
    let pod = operator.await_operate("web").await?;
    ensure!(evidence(&pod, &name)["detail"] == PROOF, "{}", evidence(&pod, &name));
    operator.finish("web").await?;
    operator.await_end("web").await?;
    registry.end().await
}

/// One system is attached to the replica that leads, the other to one that relays; the leader goes away, in both ways.
async fn attached_across_leaders(scene: Arc<Scene>) -> Result<()> {
    let registry = Registry::of(&scene).await?;
    let names = [register(&scene, &registry, "direct").await?, register(&scene, &registry, "relayed").await?];
    let [direct, relayed] = [
        AttachedSystem::start(&registry, &replicas(&scene, true).await?, &names[0]).await?,
        AttachedSystem::start(&registry, &replicas(&scene, false).await?, &names[1]).await?,
    ];
    scene.create("web").await?;
    scene.until_available("web").await?;
    for is_killed in [true, false] {
        for system in [&direct, &relayed] {
            system.answer(Phase::Prepare, Reply::Silent);
        }
        let operator = scene.operator(if is_killed { "killed" } else { "stopped" }, "update");
        let before = (count(&direct), count(&relayed));
        operator.begin("web").await?;
        direct.until("the direct one to be asked", |log| log.open > 0).await?;
        relayed.until("the relayed one to be asked", |log| log.open > 0).await?;
        let leader = leader(&scene).await?;
        let ended = if is_killed { leader.kill().await } else { leader.stop().await.map(drop) };
        let next = async {
            direct.until("the direct one to be asked anew", |log| log.asked.len() > before.0 + 1).await?;
            relayed.until("the relayed one to be asked anew", |log| log.asked.len() > before.1 + 1).await
        };
        let next = next.await;
        let pod = scene.feed().get("web");
        leader.start().await?;
        ended?;
        next?;
        let pod = pod.context("there is no pod web")?;
        ensure!(!operator.has(&pod, Stage::Operate), "no system had let go: {}", pods::describe(&pod));
        direct.answer(Phase::Prepare, Reply::Done);
        relayed.answer(Phase::Prepare, Reply::Done);
        operator.await_operate("web").await?;
        operator.finish("web").await?;
        operator.await_end("web").await?;
    }
    registry.end().await
}

fn count(system: &AttachedSystem) -> usize {
    system.log().asked.len()
}
