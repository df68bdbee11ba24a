//! Whether a task may still act for its binding.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::tenure::Tenure;

/// Whether a task may still change the registry for its binding and answer questions. It is checked before each change,
/// because a change can wait for long, and another replica may be responsible for the binding by then.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    stop: CancellationToken,
    tenure: Arc<Tenure>,
}

impl Fence {
    /// `stop` is cancelled when the task is to end.
    pub(crate) fn new(stop: CancellationToken, tenure: Arc<Tenure>) -> Self {
        Self { stop, tenure }
    }

    /// Returns whether the task may act.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_ended() && self.tenure.is_confirmed()
    }

    /// Waits for `future`. Returns `None` when the task is to end.
    pub(crate) async fn run<F: Future>(&self, future: F) -> Option<F::Output> {
        self.stop.run_until_cancelled(future).await
    }

    /// Returns whether the task is to end: it may not even send heartbeats.
    pub(crate) fn is_ended(&self) -> bool {
        self.stop.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_task_acts_while_its_replica_is_responsible() {
        let (stop, tenure) = (CancellationToken::new(), Arc::<Tenure>::default());
        let fence = Fence::new(stop.clone(), Arc::clone(&tenure));
        assert!(!fence.is_open() && !fence.is_ended());
        tenure.confirm(Instant::now());
        assert!(fence.is_open());
        stop.cancel();
        assert!(!fence.is_open() && fence.is_ended());
    }
}
