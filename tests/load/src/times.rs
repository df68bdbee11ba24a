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
