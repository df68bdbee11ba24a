//! Scale-in by the real ReplicaSet controller. It repeats rejected deletes within milliseconds, perhaps for other
//! pods.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use podward_e2e::{Fixture, Test};
use podward_support::{TrafficBehaviour, TrafficPace};

use crate::controllers::{leader, next_leader};

use super::{
    objects::{deployment, is_delete_requested, is_of, make, names_of, scale, until_all_serve},
    replay::{now, replay},
};

/// The number of concurrent Deployments, and of scale-ins of each: 50 runs in all.
const DEPLOYMENTS: usize = 17;
const ROUNDS: usize = 3;
const FROM: usize = 5;
const TO: usize = 3;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("scale_in_takes_exactly_as_many", |fixture| scale_in(fixture, false)),
        Test::simulated_alone("scale_in_with_a_change_of_leader", |fixture| scale_in(fixture, true)),
    ]
}

/// From five pods to three: exactly two leave service and are deleted in each of 51 runs, for any delay of consumers.
async fn scale_in(fixture: Arc<Fixture>, changes_leader: bool) -> Result<()> {
    let traffic = fixture.traffic();
    let names: Vec<String> = (0..DEPLOYMENTS).map(|number| format!("web-{number:02}")).collect();
    let apps: Vec<&str> = names.iter().map(String::as_str).collect();
    try_join_all(apps.iter().map(|app| make(&fixture, deployment(&fixture, app, FROM)))).await?;
    for round in 0..ROUNDS {
        try_join_all(apps.iter().map(|app| scale(&fixture, "Deployment", app, FROM))).await?;
        until_all_serve(&fixture, &apps, FROM).await?;
        let before: Vec<BTreeSet<String>> =
            apps.iter().map(|app| names_of(&fixture, app).into_iter().collect()).collect();
        let since = now(&fixture).await?;
        // In one round, no consumer drains until all deletion requests are recorded. In the others, consumers drain
        // at once or a little later.
        let pace = [TrafficPace::Hold, TrafficPace::AtOnce, TrafficPace::After(Duration::from_millis(300))]
            [round % 3];
        traffic.set_behaviour(TrafficBehaviour { drain: pace, ..TrafficBehaviour::PROMPT });
        try_join_all(apps.iter().map(|app| scale(&fixture, "Deployment", app, TO))).await?;
        let under_way = async {
            if pace == TrafficPace::Hold {
                let all = |pods: &[&Pod]| apps.iter().all(|app| requested(pods, app) == FROM - TO);
                fixture.feed().until_pods("all deletion requests are recorded", all).await?;
            } else {
                let some = |pods: &[&Pod]| pods.iter().any(|pod| is_delete_requested(pod));
                fixture.feed().until_pods("some deletion requests are recorded", some).await?;
            }
            Ok::<_, anyhow::Error>(())
        };
        under_way.await?;
        if changes_leader {
            change_leader(&fixture).await?;
        }
        traffic.set_behaviour(TrafficBehaviour::PROMPT);
        until_all_serve(&fixture, &apps, TO).await.with_context(|| format!("round {round}"))?;
        for (app, before) in apps.iter().zip(&before) {
            let seen = replay(&fixture, since, |name| before.contains(name)).await?;
            let (left, gone) = (seen.left.len(), seen.gone.len());
            ensure!(left == FROM - TO, "{app}, round {round}: {left} pods left service: {:?}", seen.left);
            ensure!(gone == FROM - TO, "{app}, round {round}: {gone} pods went: {:?}", seen.gone);
            let kept: BTreeSet<String> = names_of(&fixture, app).into_iter().collect();
            ensure!(kept.is_subset(before), "{app}, round {round}: a pod was made");
        }
    }
    Ok(())
}

fn requested(pods: &[&Pod], app: &str) -> usize {
    pods.iter().filter(|pod| is_of(pod, app) && is_delete_requested(pod)).count()
}

/// Kills the leader, and starts it again when another one leads.
async fn change_leader(fixture: &Fixture) -> Result<()> {
    let leader = leader(fixture).await?;
    leader.kill().await?;
    let next = next_leader(fixture, &leader).await;
    leader.start().await?;
    next.map(drop)
}
