//! Starts and stops the work for each binding that this replica is responsible for.

mod calls;
mod comparison;
mod connection;
mod hook;
mod kruise_answers;
mod question_span;
mod registry_watch;
mod renewal;
mod reported;
mod shared;
mod status;
mod task;
mod tracked;

use std::collections::HashMap;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::members::Members;
use crate::model::{BindingKey, keeper_of};
use task::BindingTask;

pub(crate) use shared::Shared;

struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Does the work for the bindings of this replica until `stop`, and waits until it has ended.
pub(crate) async fn keep(shared: Shared, mut members: watch::Receiver<Members>, stop: CancellationToken) {
    let mut bindings = shared.index.subscribe_to_bindings();
    let mut running: HashMap<BindingKey, Running> = HashMap::new();
    loop {
        bindings.borrow_and_update();
        let present = members.borrow_and_update().clone();
        let is_ours =
            |key: &BindingKey| keeper_of(key, present.iter().map(String::as_str)) == Some(&*shared.replica);
        let wanted: Vec<BindingKey> = shared.index.binding_keys().into_iter().filter(is_ours).collect();
        let ended: Vec<BindingKey> = running.keys().filter(|key| !wanted.contains(key)).cloned().collect();
        for key in ended {
            if let Some(running) = running.remove(&key) {
                running.stop.cancel();
                shared.metrics.forget(&key);
            }
        }
        for key in wanted {
            if running.get(&key).is_none_or(|running| running.task.is_finished()) {
                let stop = CancellationToken::new();
                // What the clients of registries log belongs to the binding, too.
                let span = tracing::info_span!("binding", binding = %key);
                let task = BindingTask::new(shared.clone(), key.clone()).run(stop.clone()).instrument(span);
                running.insert(key, Running { stop, task: tokio::spawn(task) });
            }
        }
        shared.metrics.kept.set(i64::try_from(running.len()).unwrap_or(i64::MAX));
        tokio::select! {
            changed = members.changed() => if changed.is_err() { break },
            changed = bindings.changed() => if changed.is_err() { break },
            () = stop.cancelled() => break,
        }
    }
    for running in running.values() {
        running.stop.cancel();
    }
    for (key, running) in running {
        if let Err(error) = running.task.await {
            tracing::error!(binding = %key, %error, "the task of a binding failed");
        }
    }
}
