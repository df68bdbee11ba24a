//! Counts the results of requests.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::report::{Connections, LoadReport, LoadSecond, RequestFailure};

/// The counts of one load.
#[derive(Debug)]
pub(crate) struct Tally {
    connections: Connections,
    started: Instant,
    last_success: Instant,
    longest_pause: Duration,
    latencies: Vec<Duration>,
    reasons: BTreeMap<String, u64>,
    failures: Vec<RequestFailure>,
    series: Vec<LoadSecond>,
    answered_by: BTreeMap<SocketAddr, u64>,
    pub(crate) sent_again: u64,
    pub(crate) opened: u64,
}

impl Tally {
    pub(crate) fn new(connections: Connections, started: Instant) -> Self {
        Self {
            connections,
            started,
            last_success: started,
            longest_pause: Duration::ZERO,
            latencies: Vec::new(),
            reasons: BTreeMap::new(),
            failures: Vec::new(),
            series: Vec::new(),
            answered_by: BTreeMap::new(),
            sent_again: 0,
            opened: 0,
        }
    }

    /// Counts a request that was due at `due` and got a good response from `address`.
    pub(crate) fn succeeded(&mut self, address: SocketAddr, due: Instant, now: Instant) {
        *self.answered_by.entry(address).or_default() += 1;
        self.longest_pause = self.longest_pause.max(now.saturating_duration_since(self.last_success));
        self.last_success = now;
        self.latencies.push(now.saturating_duration_since(due));
        self.second(now).requests += 1;
    }

    /// Counts a request that was due at `due` and got no good response.
    pub(crate) fn failed(&mut self, reason: String, due: Instant, now: Instant) {
        if self.failures.len() < MOST_FAILURES {
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let at_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
            let took_ms = milliseconds(&now.saturating_duration_since(due));
            self.failures.push(RequestFailure { reason: reason.clone(), at_ms, took_ms });
        }
        *self.reasons.entry(reason).or_default() += 1;
        let second = self.second(now);
        second.requests += 1;
        second.failed += 1;
    }

    fn second(&mut self, now: Instant) -> &mut LoadSecond {
        let index = now.saturating_duration_since(self.started).as_secs();
        let index = usize::try_from(index).unwrap_or(usize::MAX).min(MOST_SECONDS);
        if self.series.len() <= index {
            self.series.resize(index + 1, LoadSecond::default());
        }
        &mut self.series[index]
    }

    /// Returns the report of a load that has run until `end`.
    pub(crate) fn report(&self, end: Instant) -> LoadReport {
        let failed = self.reasons.values().sum();
        let mut latencies = self.latencies.clone();
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = (latencies.len() as f64 * share) as usize;
            latencies.get(index.min(latencies.len().saturating_sub(1))).map_or(0.0, milliseconds)
        };
        let pause = self.longest_pause.max(end.saturating_duration_since(self.last_success));
        LoadReport {
            connections: self.connections,
            seconds: end.saturating_duration_since(self.started).as_secs_f64(),
            requests: latencies.len() as u64 + failed,
            failed,
            reasons: self.reasons.clone(),
            failures: self.failures.clone(),
            sent_again: self.sent_again,
            opened: self.opened,
            longest_pause_ms: milliseconds(&pause),
            median_ms: at(0.5),
            p99_ms: at(0.99),
            series: self.series.clone(),
            answered_by: self.answered_by.clone(),
            discovery: None,
        }
    }
}

/// The number of failures that are listed. Others are only counted.
const MOST_FAILURES: usize = 20;

/// Later seconds are counted with this one, to bound the memory.
const MOST_SECONDS: usize = 24 * 3600;

fn milliseconds(duration: &Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_finds_the_longest_pause() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut tally = Tally::new(Connections::New, start);
        let (one, other) = (SocketAddr::from(([10, 0, 0, 1], 80)), SocketAddr::from(([10, 0, 0, 2], 80)));
        tally.succeeded(one, at(5), at(10));
        tally.failed("refused".to_owned(), at(490), at(500));
        tally.succeeded(other, at(690), at(700));
        tally.failed("refused".to_owned(), at(90), at(1100));
        let report = tally.report(at(1200));
        assert_eq!((report.requests, report.failed), (4, 2));
        assert_eq!(report.reasons, BTreeMap::from([("refused".to_owned(), 2)]));
        let took: Vec<f64> = report.failures.iter().map(|failure| failure.took_ms.round()).collect();
        assert_eq!(took, [10.0, 1010.0]);
        assert!((report.longest_pause_ms - 690.0).abs() < 1e-6, "{}", report.longest_pause_ms);
        assert!((report.median_ms - 10.0).abs() < 1e-6, "{}", report.median_ms);
        let series = [LoadSecond { requests: 3, failed: 1 }, LoadSecond { requests: 1, failed: 1 }];
        assert_eq!(report.series, series);
        assert_eq!(report.answered_by, BTreeMap::from([(one, 1), (other, 1)]));
        // A pause that has not ended counts, too.
        assert!((tally.report(at(2000)).longest_pause_ms - 1300.0).abs() < 1e-6);
    }
}
