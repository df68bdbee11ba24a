//! Keeps the logs of a failing test's clusters, including clusters that tests share and that are never dropped.

use std::{collections::BTreeMap, path::PathBuf, sync::Once};

use parking_lot::Mutex;

use crate::state::Layout;

/// The folders of the clusters that this process owns, and the folders of their logs.
static OWNED: Mutex<BTreeMap<PathBuf, PathBuf>> = Mutex::new(BTreeMap::new());
static HOOK: Once = Once::new();

/// Makes a panic in this process keep the logs of this cluster and print their folder.
pub(crate) fn remember(layout: &Layout, logs: PathBuf) {
    OWNED.lock().insert(layout.dir.clone(), logs);
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            for (dir, logs) in OWNED.lock().iter() {
                if keep_logs(&Layout::new(dir)) {
                    eprintln!("logs of the test cluster are kept in {}", logs.display());
                }
            }
        }));
    });
}

/// Removes a cluster that has ended.
pub(crate) fn forget(layout: &Layout) {
    OWNED.lock().remove(&layout.dir);
}

/// Makes the supervisor keep the logs. Returns false if the cluster is already gone, and with it the choice.
pub(crate) fn keep_logs(layout: &Layout) -> bool {
    std::fs::write(layout.keep_logs(), "").is_ok()
}
