//! Runs asynchronous tests, and reports those that need root as ignored for other users.

use std::sync::LazyLock;

use libtest_mimic::Trial;
use tokio::runtime::Runtime;

/// The runtime of all tests. They share it because some share a cluster, whose connections belong to a runtime.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// Returns a test that any user can run.
pub(crate) fn test<F, Fut>(name: &str, body: F) -> Trial
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    Trial::test(name, move || {
        block_on(body());
        Ok(())
    })
}

/// Returns a test that starts a real node, which only root can do. It is ignored, with the reason, for other users.
pub(crate) fn test_as_root<F, Fut>(name: &str, body: F) -> Trial
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    let is_root = nix::unistd::geteuid().is_root();
    test(name, body).with_kind(if is_root { "" } else { "needs root" }).with_ignored_flag(!is_root)
}
