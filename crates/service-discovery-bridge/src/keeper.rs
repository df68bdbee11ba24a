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
mod running;
mod shared;
mod status;
mod task;
mod tracked;

use std::collections::HashSet;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::members::Members;
use crate::model::{BindingKey, keeper_of};
use running::RunningTasks;
use task::BindingTask;

pub(crate) use shared::Shared;

/// Does the work for the bindings of this replica until `stop`, and waits until it has ended.
pub(crate) async fn keep(shared: Shared, mut members: watch::Receiver<Members>, stop: CancellationToken) {
    let mut bindings = shared.index.subscribe_to_bindings();
    let mut tasks = RunningTasks::default();
    loop {
        bindings.borrow_and_update();
        let present = members.borrow_and_update().clone();
        let is_ours =
            |key: &BindingKey| keeper_of(key, present.iter().map(String::as_str)) == Some(&*shared.replica);
        let wanted: HashSet<BindingKey> = shared.index.binding_keys().into_iter().filter(is_ours).collect();
        tasks.stop_others(&wanted);
        shared.metrics.kept.set(i64::try_from(wanted.len()).unwrap_or(i64::MAX));
        for key in wanted {
            let task = |stop| {
                // What the clients of registries log belongs to the binding, too.
                let span = tracing::info_span!("binding", binding = %key);
                BindingTask::new(shared.clone(), key.clone(), stop).run().instrument(span)
            };
            tasks.start(key.clone(), task);
        }
        tokio::select! {
            changed = members.changed() => if changed.is_err() { break },
            changed = bindings.changed() => if changed.is_err() { break },
            Some(key) = tasks.next_end() => shared.metrics.forget(&key),
            () = stop.cancelled() => break,
        }
    }
    tasks.stop_others(&HashSet::new());
    while tasks.next_end().await.is_some() {}
}
