//! Keeps the logs of the beds of a failing test, also of a bed that tests share and nobody drops.

use std::{collections::BTreeMap, path::PathBuf, sync::Once};

use parking_lot::Mutex;

use crate::state::Layout;

/// The beds that this process owns, and where their logs are.
static OWNED: Mutex<BTreeMap<PathBuf, PathBuf>> = Mutex::new(BTreeMap::new());
static HOOK: Once = Once::new();

/// From now on a panic anywhere in this process keeps the logs of this bed and says where they are.
pub(crate) fn remember(layout: &Layout, logs: PathBuf) {
    OWNED.lock().insert(layout.dir.clone(), logs);
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            for (dir, logs) in OWNED.lock().iter() {
                if keep_logs(&Layout::new(dir)) {
                    eprintln!("logs of the test bed are kept in {}", logs.display());
                }
            }
        }));
    });
}

/// The bed has ended.
pub(crate) fn forget(layout: &Layout) {
    OWNED.lock().remove(&layout.dir);
}

/// Tells the keeper to leave the logs behind. If the bed's folder is gone, so is the bed, and what became of its logs is
/// decided: then the answer is false.
pub(crate) fn keep_logs(layout: &Layout) -> bool {
    std::fs::write(layout.keep_logs(), "").is_ok()
}
