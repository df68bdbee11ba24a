//! Hook systems that cannot accept connections: they attach.

mod system;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::Api;
use podward_api::LifecycleHook;
use podward_core::keys::Stage;
use podward_e2e::{Fixture, NAMESPACE_NAME, ServiceInstance, Test};
use podward_proto::v1::{self, Phase, hook::Connection};
use podward_support::{ServiceKind, pods};

use crate::controllers::leader;

use self::system::AttachedSystem;
use super::{
    registry::Registry,
    reports::{evidence, until_counted},
    script::{HookReply, PROOF},
    server::{has, unique, until_status},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("hook_attached", |fixture| attached(fixture, false)),
        Test::node("hook_attached_by_relay", |fixture| attached(fixture, true)),
        Test::alone("hook_attached_across_leaders", attached_across_leaders),
    ]
}

/// Registers a hook that attaches, for all pods of the test's namespace.
async fn register(fixture: &Fixture, registry: &Registry, name: &str) -> Result<String> {
    let name = unique(name);
    let hook = v1::Hook {
        name: name.clone(),
        namespace_selector: Some(v1::LabelSelector {
            match_labels: [(NAMESPACE_NAME.to_owned(), fixture.namespace().to_owned())].into(),
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

/// Returns the replicas with the leader first or last.
async fn replicas(fixture: &Fixture, leader_first: bool) -> Result<Vec<ServiceInstance>> {
    let leader = leader(fixture).await?;
    let mut all = fixture.podward()?.services(ServiceKind::LifecycleController);
    all.sort_by_key(|service| (service.name() == leader.name()) != leader_first);
    Ok(all)
}

async fn attached(fixture: Arc<Fixture>, by_relay: bool) -> Result<()> {
    let registry = Registry::of(&fixture).await?;
    let name = register(&fixture, &registry, "attached").await?;
    let hooks: Api<LifecycleHook> = Api::all(fixture.client());
    let nobody_is = |status: &_| has(status, "Reachable", "False") && status.last_error.is_some();
    until_status(&hooks, &name, "nobody is attached", nobody_is).await?;
    let replica = replicas(&fixture, !by_relay).await?.swap_remove(0);
    let system = AttachedSystem::start(&registry, &[replica], &name).await?;
    system.until_attached(1).await?;
    until_status(&hooks, &name, "it is attached", |status| has(status, "Reachable", "True")).await?;

    fixture.create("web").await?;
    fixture.until_available("web").await?;
    system.answer(Phase::Prepare, HookReply::Pending);
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    let question = system.until_called("web", Phase::Prepare).await?;
    ensure!(question.request.hook_name == name, "asked as {:?}", question.request.hook_name);
    // Answers without a call have no effect.
    system.babble().await?;
    until_counted(&fixture, "podward_hook_answers_ignored_total", &[&name]).await?;
    system.until_called_again("web", Phase::Prepare, 2).await?;
    let pod = fixture.feed().get("web").context("there is no pod web")?;
    ensure!(
        !operator.has(&pod, Stage::Operate),
        "an answer to no question counted: {}",
        pods::describe(&pod)
    );
    system.answer(Phase::Prepare, HookReply::Done);
    let pod = operator.await_operate("web").await?;
    ensure!(evidence(&pod, &name)["detail"] == PROOF, "{}", evidence(&pod, &name));
    operator.finish("web").await?;
    operator.await_end("web").await?;
    registry.end().await
}

/// One system is attached to the leader, the other to a replica that relays. The leader stops, cleanly and by a kill.
async fn attached_across_leaders(fixture: Arc<Fixture>) -> Result<()> {
    let registry = Registry::of(&fixture).await?;
    let names =
        [register(&fixture, &registry, "direct").await?, register(&fixture, &registry, "relayed").await?];
    let [direct, relayed] = [
        AttachedSystem::start(&registry, &replicas(&fixture, true).await?, &names[0]).await?,
        AttachedSystem::start(&registry, &replicas(&fixture, false).await?, &names[1]).await?,
    ];
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    for is_killed in [true, false] {
        for system in [&direct, &relayed] {
            system.answer(Phase::Prepare, HookReply::Silent);
        }
        let operator = fixture.operator(if is_killed { "killed" } else { "stopped" }, "update");
        let before = (count(&direct), count(&relayed));
        operator.begin("web").await?;
        direct.until("the direct one to be asked", |log| log.open > 0).await?;
        relayed.until("the relayed one to be asked", |log| log.open > 0).await?;
        let leader = leader(&fixture).await?;
        let ended = if is_killed { leader.kill().await } else { leader.stop().await.map(drop) };
        let next = async {
            direct.until("the direct one to be asked anew", |log| log.asked.len() > before.0 + 1).await?;
            relayed.until("the relayed one to be asked anew", |log| log.asked.len() > before.1 + 1).await
        };
        let next = next.await;
        let pod = fixture.feed().get("web");
        leader.start().await?;
        ended?;
        next?;
        let pod = pod.context("there is no pod web")?;
        ensure!(!operator.has(&pod, Stage::Operate), "no system had drained it: {}", pods::describe(&pod));
        direct.answer(Phase::Prepare, HookReply::Done);
        relayed.answer(Phase::Prepare, HookReply::Done);
        operator.await_operate("web").await?;
        operator.finish("web").await?;
        operator.await_end("web").await?;
    }
    registry.end().await
}

fn count(system: &AttachedSystem) -> usize {
    system.log().asked.len()
}
