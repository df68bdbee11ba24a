//! Wishes are recorded by any replica of the lifecycle-controller.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Scene, Test};
use podward_support::{Behaviour, Kind};

use super::made::{until_gone, until_leaving};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::alone("a_wish_is_recorded_by_any_replica", a_wish_is_recorded_by_any_replica)]
}

/// Each replica is away once, the leader too: deletes are recorded at once, and carried out when somebody leads.
async fn a_wish_is_recorded_by_any_replica(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web-0", "web-1"]).await?;
    let controllers = scene.podward()?.services(Kind::LifecycleController);
    ensure!(controllers.len() == 2, "there are {} lifecycle-controllers", controllers.len());
    for (name, controller) in ["web-0", "web-1"].into_iter().zip(&controllers) {
        traffic.behave(Behaviour::HOLDS);
        controller.kill().await?;
        let held = async {
            let said = scene.kubectl(&["delete", "pod", name, "--wait=false"]).await?;
            said.was_held(&["is deleted by itself", "asked for by"])?;
            until_leaving(&scene, name).await?;
            traffic.behave(Behaviour::PROMPT);
            until_gone(&scene, name).await
        };
        let held = held.await;
        controller.start().await?;
        held?;
    }
    Ok(())
}
