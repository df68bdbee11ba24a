//! The states of the pods, printed and checked.

use anyhow::{Context, Result, ensure};
use kube::{Client, ResourceExt};

use super::super::act::Act;
use super::super::clock::DemoClock;
use crate::feed::{PodFeedEvent, WatchTask, observe};
use crate::markers::{States, state};

/// What every pod passes before it is in use.
const NEW: [&str; 2] = ["PreparingNormal", "Normal"];
const UPDATE: [&str; 4] = ["PreparingUpdate", "Updating", "Updated", "Normal"];
const DELETE: [&str; 1] = ["PreparingDelete"];

/// The states of the pods of a set.
pub(super) struct Timeline {
    states: States,
    _watches: [WatchTask; 2],
}

impl Timeline {
    /// Begins to print and record them.
    pub(super) async fn start(client: Client, namespace: &str, clock: &DemoClock) -> Result<Self> {
        let (states, record) = States::record(client.clone(), namespace).await?;
        let (clock, mut last) = (*clock, std::collections::BTreeMap::new());
        let print = observe(client, namespace, "", move |event| match event {
            PodFeedEvent::Version(pod) => {
                let Some(state) = state(&pod) else { return };
                if last.insert(pod.name_any(), state.clone()).as_ref() != Some(&state) {
                    clock.say(&format!("  pod {}: {state}", pod.name_any()));
                }
            }
            PodFeedEvent::Gone(pod) => clock.say(&format!("  pod {}: gone", pod.name_any())),
            PodFeedEvent::Gap | PodFeedEvent::Left(_) => {}
        });
        let print = print.await.context("watch the states of the pods")?;
        Ok(Self { states, _watches: [record, print] })
    }

    /// Checks that each pod has passed the states of the act, and no others.
    pub(super) fn check(&self, act: Act) -> Result<()> {
        let (updated, deleted) = ([&NEW[..], &UPDATE].concat(), [&NEW[..], &DELETE].concat());
        let allowed: [&[&str]; 2] = match act {
            Act::InPlaceUpdate => [&updated, &updated],
            _ => [&NEW, &deleted],
        };
        let all = self.states.all();
        ensure!(!all.is_empty(), "no pod had a state");
        for (pod, states) in all {
            ensure!(allowed.iter().any(|it| *it == states), "pod {pod} had the states {states:?} in {act}");
        }
        Ok(())
    }
}
