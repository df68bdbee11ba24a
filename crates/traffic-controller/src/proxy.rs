//! Determines from its metrics which changes a node's kube-proxy has applied.
//!
//! Facts from Kubernetes 1.36 `pkg/proxy`, for the modes nftables and iptables:
//! - A change of a slice increments `endpoint_changes_pending`, sets `last_queued_timestamp_seconds` of its address
//!   family, and requests a sync. The syncs of a family do not overlap.
//! - A sync sets `endpoint_changes_pending` to 0 **when it begins**, for both families. The value 0 does not mean that
//!   the rules are written.
//! - A sync sets `last_timestamp_seconds` when it has written the rules. A sync that fails does not set it, and the
//!   next sync writes all rules.
//! - A sync is counted in `duration_seconds` when it has ended, even if it failed.
//! - A sync that failed is retried after `syncPeriod`, 30 s by default, or with the next change. Nothing is pending in
//!   between.
//!
//! A change that is queued while a sync runs is not written by that sync, although the sync ends after the change was
//! queued and nothing is pending once the next sync has begun. Two observations prove that kube-proxy has written all
//! changes that it had received when it was read:
//! - A sync that succeeded *began* after the last of these changes was queued.
//! - kube-proxy is idle: no sync ended for longer than any sync ever took, and the last sync did not fail.
//!
//! Both compare values of the clock of one node, never of two clocks.

mod page;
mod reading;
mod settings;
mod state;
mod watch_lag;

pub(crate) use page::ProxyPage;
pub(crate) use reading::ProxyReading;
pub(crate) use settings::ProxySettings;
pub(crate) use state::{KubeProxyState, ReadFailure, RulesState};
pub(crate) use watch_lag::WATCH_LAG;

#[cfg(test)]
mod tests;
