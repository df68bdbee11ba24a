//! Statistics of durations.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Durations, in milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Median.
    pub median_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

impl Times {
    /// Returns the statistics of `durations`, in any order.
    pub(crate) fn of_durations(durations: impl Iterator<Item = Duration>) -> Times {
        Times::of(durations.map(|duration| duration.as_secs_f64() * 1e3).collect())
    }

    /// Returns the statistics of `times`, in any order.
    pub(crate) fn of(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        let at = |per_mille: usize| {
            times.get(times.len() * per_mille / 1000).or(times.last()).copied().unwrap_or(f64::NAN)
        };
        Times { median_ms: at(500), p99_ms: at(990) }
    }
}

/// Waits between two measurements, longest 250 ms. The API server asks etcd at most every 100 ms whether its caches are up
/// to date. If measurements follow each other at once, each one waits for the end of these 100 ms, and takes that long.
pub(crate) async fn pause(number: usize) {
    // 37 and 100 have no common factor: the pauses are spread evenly.
    let spread = u64::try_from(number * 37 % 100).unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(150 + spread)).await;
}
