//! One budget of bytes for the content of all requests in flight of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The default size: a quarter of the memory that the chart gives a webhook. Parsing and answering need memory too.
pub const DEFAULT_BYTES: usize = 64 << 20;

/// The bytes of requests that a process may hold at the same time. Clones share them.
///
/// Bytes count when they have arrived, not when they are announced, so a client that announces much and sends nothing
/// holds nothing.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    shared: Arc<SharedBudget>,
}

#[derive(Debug)]
struct SharedBudget {
    limit: usize,
    used: AtomicUsize,
    used_metric: Gauge,
    refused: Counter,
}

/// The budget has no room for the bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the requests in flight of this replica hold the {limit} bytes that they may (--max-request-bytes); try again soon"
)]
pub struct BudgetExhausted {
    /// The size of the budget, in bytes.
    pub limit: usize,
}

/// Bytes that a request holds, until they are released or it is dropped.
#[derive(Debug)]
pub struct HeldBytes {
    budget: ByteBudget,
    held: usize,
}

impl Default for ByteBudget {
    fn default() -> Self {
        Self::new(DEFAULT_BYTES)
    }
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let (used, used_metric, refused) = (AtomicUsize::new(0), Gauge::default(), Counter::default());
        Self { shared: Arc::new(SharedBudget { limit, used, used_metric, refused }) }
    }

    /// Adds its metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let limit: Gauge = Gauge::default();
        limit.set(i64::try_from(self.shared.limit).unwrap_or(i64::MAX));
        registry.register(
            "request_bytes",
            "Bytes of requests in flight, gRPC messages or bodies of reviews",
            self.shared.used_metric.clone(),
        );
        registry.register("request_bytes_limit", "Maximum of podward_request_bytes", limit);
        registry.register(
            "request_bytes_refused",
            "Requests that were refused because podward_request_bytes had reached its maximum",
            self.shared.refused.clone(),
        );
    }

    /// Returns the holder of a request, which holds nothing yet.
    #[must_use]
    pub fn holder(&self) -> HeldBytes {
        HeldBytes { budget: self.clone(), held: 0 }
    }
}

impl HeldBytes {
    /// Holds `more` bytes in addition.
    ///
    /// # Errors
    ///
    /// When the budget has no room for them. It then holds what it held before.
    pub fn grow(&mut self, more: usize) -> Result<(), BudgetExhausted> {
        let SharedBudget { limit, used, used_metric, refused } = &*self.budget.shared;
        let fits = |now: usize| now.checked_add(more).filter(|sum| sum <= limit);
        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            refused.inc();
            return Err(BudgetExhausted { limit: *limit });
        }
        used_metric.inc_by(signed(more));
        self.held += more;
        Ok(())
    }

    /// Holds nothing any more.
    pub fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.budget.shared.used.fetch_sub(held, Ordering::Relaxed);
        self.budget.shared.used_metric.dec_by(signed(held));
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.release();
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_share_the_budget_and_return_what_they_held() {
        let budget = ByteBudget::new(10);
        let (mut one, mut two) = (budget.holder(), budget.holder());
        one.grow(6).unwrap();
        two.grow(4).unwrap();
        assert_eq!(two.grow(1), Err(BudgetExhausted { limit: 10 }));
        assert_eq!(one.grow(usize::MAX), Err(BudgetExhausted { limit: 10 }));
        drop(one);
        two.grow(6).unwrap();
        two.release();
        assert_eq!((budget.shared.used.load(Ordering::Relaxed), budget.shared.used_metric.get()), (0, 0));
        assert_eq!(budget.shared.refused.get(), 2);
    }
}
