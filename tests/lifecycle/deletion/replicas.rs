//! Any replica of the lifecycle-controller records deletion requests.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Fixture, Test};
use podward_support::{ServiceKind, TrafficBehaviour};

use super::objects::{until_gone, until_leaving};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::alone(
        "a_deletion_request_is_recorded_by_any_replica",
        a_deletion_request_is_recorded_by_any_replica,
    )]
}

/// Each replica is down once, including the leader. Deletion requests are recorded at once, and executed when a
/// replica leads.
async fn a_deletion_request_is_recorded_by_any_replica(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web-0", "web-1"]).await?;
    let controllers = fixture.podward()?.services(ServiceKind::LifecycleController);
    ensure!(controllers.len() == 2, "there are {} lifecycle-controllers", controllers.len());
    for (name, controller) in ["web-0", "web-1"].into_iter().zip(&controllers) {
        traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
        controller.kill().await?;
        let held = async {
            let said = fixture.kubectl(&["delete", "pod", name, "--wait=false"]).await?;
            said.was_held(&["is deleted automatically", "requested by"])?;
            until_leaving(&fixture, name).await?;
            traffic.set_behaviour(TrafficBehaviour::PROMPT);
            until_gone(&fixture, name).await
        };
        let held = held.await;
        controller.start().await?;
        held?;
    }
    Ok(())
}
