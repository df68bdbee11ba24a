//! Two leaders: one that was frozen wakes, and doesn't know that another leads.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use podward_e2e::{Scene, Service, Test};
use podward_support::{WAIT, within};

use super::held::Held;
use crate::controllers::{leader, next_leader};

const POLL: Duration = Duration::from_millis(50);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("chaos_two_leaders", two_leaders),
        Test::alone("chaos_leader_wakes_to_lead_again", leader_wakes_to_lead_again),
    ]
}

/// Whether the service says that it leads.
async fn says_it_leads(service: &Service) -> Result<bool> {
    let metrics = service.metrics().await?;
    let line = metrics.lines().find(|line| line.starts_with("podward_leader"));
    let line = line.with_context(|| format!("{} has no metric podward_leader", service.name()))?;
    Ok(line.ends_with(" 1"))
}

async fn two_leaders(scene: Arc<Scene>) -> Result<()> {
    let held = Held::set_up(&scene).await?;
    let old = leader(&scene).await?;
    old.freeze().await?;
    let went_on = async {
        let new = next_leader(&scene, &old).await?;
        held.some_go_on(&scene).await?;
        Ok::<_, anyhow::Error>(new)
    };
    let went_on = went_on.await;
    // It wakes in the belief that it leads, with what it knew then.
    old.thaw().await?;
    let new = went_on?;
    held.others_go_on(&scene).await?;
    let stepped_down = async {
        while says_it_leads(&old).await? {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(WAIT, || format!("{} to lead no more", old.name()), stepped_down).await?;
    ensure!(says_it_leads(&new).await?, "{} lost the lead to one that was frozen", new.name());
    Ok(())
}

/// The other is killed at the same moment: the first leads again, with caches that are old.
async fn leader_wakes_to_lead_again(scene: Arc<Scene>) -> Result<()> {
    let held = Held::set_up(&scene).await?;
    let old = leader(&scene).await?;
    old.freeze().await?;
    let went_on = async {
        let new = next_leader(&scene, &old).await?;
        held.some_go_on(&scene).await?;
        new.kill().await?;
        Ok::<_, anyhow::Error>(new)
    };
    let went_on = went_on.await;
    old.thaw().await?;
    let new = went_on?;
    let went_on = held.others_go_on(&scene).await;
    let leads = leader(&scene).await;
    new.start().await?;
    went_on?;
    ensure!(leads?.name() == old.name(), "{} does not lead again", old.name());
    Ok(())
}
