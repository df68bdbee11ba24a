//! Two leaders: a frozen leader continues and does not know that another one leads.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, ServiceInstance, Test};
use podward_support::{WAIT, within};

use super::waiting_pods::HeldPods;
use crate::controllers::{leader, next_leader};

const POLL: Duration = Duration::from_millis(50);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("chaos_two_leaders", two_leaders),
        Test::alone("chaos_leader_wakes_to_lead_again", leader_wakes_to_lead_again),
    ]
}

/// Returns whether the service reports that it leads.
async fn reports_that_it_leads(service: &ServiceInstance) -> Result<bool> {
    let metrics = service.metrics().await?;
    let line = metrics.lines().find(|line| line.starts_with("podward_leader"));
    let line = line.with_context(|| format!("{} has no metric podward_leader", service.name()))?;
    Ok(line.ends_with(" 1"))
}

async fn two_leaders(fixture: Arc<Fixture>) -> Result<()> {
    let held = HeldPods::set_up(&fixture).await?;
    let old = leader(&fixture).await?;
    old.freeze().await?;
    let went_on = async {
        let new = next_leader(&fixture, &old).await?;
        held.some_go_on(&fixture).await?;
        Ok::<_, anyhow::Error>(new)
    };
    let went_on = went_on.await;
    // It continues as leader, with an outdated state.
    old.thaw().await?;
    let new = went_on?;
    held.others_go_on(&fixture).await?;
    let stepped_down = async {
        while reports_that_it_leads(&old).await? {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(WAIT, || format!("{} to lead no more", old.name()), stepped_down).await?;
    ensure!(reports_that_it_leads(&new).await?, "{} lost the lead to one that was frozen", new.name());
    Ok(())
}

/// The other leader is killed at the same time, so that the first one leads again, with outdated caches.
async fn leader_wakes_to_lead_again(fixture: Arc<Fixture>) -> Result<()> {
    let held = HeldPods::set_up(&fixture).await?;
    let old = leader(&fixture).await?;
    old.freeze().await?;
    let went_on = async {
        let new = next_leader(&fixture, &old).await?;
        held.some_go_on(&fixture).await?;
        new.kill().await?;
        Ok::<_, anyhow::Error>(new)
    };
    let went_on = went_on.await;
    old.thaw().await?;
    let new = went_on?;
    let went_on = held.others_go_on(&fixture).await;
    let leads = leader(&fixture).await;
    new.start().await?;
    went_on?;
    ensure!(leads?.name() == old.name(), "{} does not lead again", old.name());
    Ok(())
}
