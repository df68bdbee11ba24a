//! Scale-in by the real ReplicaSet controller, whose refused deletes come again within milliseconds, perhaps for other pods.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use podward_e2e::{Scene, Test};
use podward_support::{Behaviour, Pace};

use crate::controllers::{leader, next_leader};

use super::{
    made::{deployment, is_of, is_wished, make, names_of, scale, until_all_serve},
    replay::{now, replay},
};

/// Deployments at a time, and how often each is scaled in: 50 runs in all.
const DEPLOYMENTS: usize = 17;
const ROUNDS: usize = 3;
const FROM: usize = 5;
const TO: usize = 3;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("scale_in_takes_exactly_as_many", |scene| scale_in(scene, false)),
        Test::simulated_alone("scale_in_with_a_change_of_leader", |scene| scale_in(scene, true)),
    ]
}

/// From five pods to three: exactly two leave service and go, in each of 51 runs, wherever consumers let them wait.
async fn scale_in(scene: Arc<Scene>, changes_leader: bool) -> Result<()> {
    let traffic = scene.traffic();
    let names: Vec<String> = (0..DEPLOYMENTS).map(|number| format!("web-{number:02}")).collect();
    let apps: Vec<&str> = names.iter().map(String::as_str).collect();
    try_join_all(apps.iter().map(|app| make(&scene, deployment(&scene, app, FROM)))).await?;
    for round in 0..ROUNDS {
        try_join_all(apps.iter().map(|app| scale(&scene, "Deployment", app, FROM))).await?;
        until_all_serve(&scene, &apps, FROM).await?;
        let before: Vec<BTreeSet<String>> =
            apps.iter().map(|app| names_of(&scene, app).into_iter().collect()).collect();
        let since = now(&scene).await?;
        // One round in which nobody lets go until all wishes stand; in the others pods go at once, or a little later.
        let pace = [Pace::Hold, Pace::AtOnce, Pace::After(Duration::from_millis(300))][round % 3];
        traffic.behave(Behaviour { let_go: pace, ..Behaviour::PROMPT });
        try_join_all(apps.iter().map(|app| scale(&scene, "Deployment", app, TO))).await?;
        let under_way = async {
            if pace == Pace::Hold {
                let all = |pods: &[&Pod]| apps.iter().all(|app| wished(pods, app) == FROM - TO);
                scene.feed().until_pods("all wishes stand", all).await?;
            } else {
                let some = |pods: &[&Pod]| pods.iter().any(|pod| is_wished(pod));
                scene.feed().until_pods("some wishes stand", some).await?;
            }
            Ok::<_, anyhow::Error>(())
        };
        under_way.await?;
        if changes_leader {
            change_leader(&scene).await?;
        }
        traffic.behave(Behaviour::PROMPT);
        until_all_serve(&scene, &apps, TO).await.with_context(|| format!("round {round}"))?;
        for (app, before) in apps.iter().zip(&before) {
            let seen = replay(&scene, since, |name| before.contains(name)).await?;
            let (left, gone) = (seen.left.len(), seen.gone.len());
            ensure!(left == FROM - TO, "{app}, round {round}: {left} pods left service: {:?}", seen.left);
            ensure!(gone == FROM - TO, "{app}, round {round}: {gone} pods went: {:?}", seen.gone);
            let kept: BTreeSet<String> = names_of(&scene, app).into_iter().collect();
            ensure!(kept.is_subset(before), "{app}, round {round}: a pod was made");
        }
    }
    Ok(())
}

fn wished(pods: &[&Pod], app: &str) -> usize {
    pods.iter().filter(|pod| is_of(pod, app) && is_wished(pod)).count()
}

/// The leader is killed; it comes back when another one leads.
async fn change_leader(scene: &Scene) -> Result<()> {
    let leader = leader(scene).await?;
    leader.kill().await?;
    let next = next_leader(scene, &leader).await;
    leader.start().await?;
    next.map(drop)
}
