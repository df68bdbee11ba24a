//! Metrics of kube-proxy, as read at one time.

use std::time::Duration;

use podward_core::UnixNanos;

use crate::world::Family;

const PREFIX: &str = "kubeproxy_sync_proxy_rules_";
/// Longer than the last bucket of the histogram of syncs, 16.4 s.
const BEYOND: Duration = Duration::from_secs(60);

/// What kube-proxy said at one time. Times of its node are nanoseconds since the Unix epoch by the node's clock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    /// When it was asked, by our clock.
    pub(crate) asked: UnixNanos,
    /// When the answer was complete, by our clock.
    pub(crate) answered: UnixNanos,
    /// The node's clock then, cut to the second; `None` when the answer doesn't say.
    pub(crate) node_clock: Option<i64>,
    /// When the process started, to tell it from the one before. In seconds.
    pub(crate) started: f64,
    /// Changes of EndpointSlices and Services that no sync has begun to write.
    pub(crate) pending: u64,
    /// Of each address family that it knows.
    pub(crate) families: [Option<FamilyReading>; Family::COUNT],
}

/// What it said of an address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilyReading {
    /// End of the last sync that succeeded.
    pub(crate) synced: i64,
    /// When a sync was last asked for.
    pub(crate) queued: i64,
    /// Syncs that have ended.
    pub(crate) syncs: u64,
    /// How long they took together, in nanoseconds.
    pub(crate) sync_nanos: i64,
    /// None of them took longer.
    pub(crate) longest: Duration,
    /// Of them, how many failed.
    pub(crate) failures: u64,
}

impl Reading {
    /// Reads the Prometheus text `text` of an answer with the header `date`.
    ///
    /// # Errors
    /// When it isn't kube-proxy's.
    pub(crate) fn parse(
        text: &str,
        date: Option<&str>,
        asked: UnixNanos,
        answered: UnixNanos,
    ) -> Result<Self, String> {
        let node_clock = date
            .and_then(|date| jiff::fmt::rfc2822::parse(date).ok())
            .and_then(|date| i64::try_from(date.timestamp().as_nanosecond()).ok());
        let mut reading =
            Self { asked, answered, node_clock, started: 0.0, pending: 0, families: [None; Family::COUNT] };
        let mut known = false;
        let mut buckets = [Bucket::default(); Family::COUNT];
        for line in text.lines() {
            if let Some(value) = line.strip_prefix("process_start_time_seconds ") {
                reading.started = number(value).unwrap_or_default();
            } else if let Some(line) = line.strip_prefix(PREFIX) {
                known |= reading.take(line, &mut buckets);
            }
        }
        if !known {
            return Err(format!(
                "the answer has no metric {PREFIX}endpoint_changes_pending; is it kube-proxy's?"
            ));
        }
        for (family, bucket) in reading.families.iter_mut().zip(buckets) {
            if let Some(family) = family {
                family.longest = bucket.bound;
            }
        }
        Ok(reading)
    }

    /// Takes a line without [`PREFIX`]. Tells whether it is one that every kube-proxy has.
    fn take(&mut self, line: &str, buckets: &mut [Bucket; Family::COUNT]) -> bool {
        let Some((name, value)) =
            line.rsplit_once(' ').and_then(|(name, value)| Some((name, number(value)?)))
        else {
            return false;
        };
        let (name, labels) = name.split_once('{').unwrap_or((name, ""));
        if matches!(name, "endpoint_changes_pending" | "service_changes_pending") {
            self.pending += whole(value);
            return true;
        }
        let Some(family) = label(labels, "ip_family")
            .and_then(|text| Family::ALL.into_iter().find(|family| family.as_str() == text))
        else {
            return false;
        };
        let reading = self.families[family.index()].get_or_insert_default();
        match name {
            "last_timestamp_seconds" => reading.synced = to_nanos(value),
            "last_queued_timestamp_seconds" => reading.queued = to_nanos(value),
            "duration_seconds_count" => reading.syncs = whole(value),
            "duration_seconds_sum" => reading.sync_nanos = to_nanos(value),
            // There from the first failure on.
            "nftables_sync_failures_total" | "iptables_restore_failures_total" => {
                reading.failures = whole(value)
            }
            "duration_seconds_bucket" => {
                // Each has all that the ones before have: the last that has more than the one before bounds them all.
                let bucket = &mut buckets[family.index()];
                if whole(value) > bucket.count {
                    let bound = label(labels, "le").and_then(number).unwrap_or_default();
                    *bucket = Bucket {
                        count: whole(value),
                        bound: Duration::try_from_secs_f64(bound).unwrap_or(BEYOND),
                    };
                }
            }
            _ => {}
        }
        false
    }
}

/// The highest bucket of a histogram that isn't empty.
#[derive(Clone, Copy, Default)]
struct Bucket {
    count: u64,
    bound: Duration,
}

fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let labels = labels.trim_end_matches('}');
    labels.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == name).then(|| value.trim_matches('"'))
    })
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

/// Seconds as nanoseconds.
fn to_nanos(seconds: f64) -> i64 {
    // Saturates, and makes nothing of what is not a number.
    #[allow(clippy::cast_possible_truncation)]
    let nanos = (seconds * 1e9) as i64;
    nanos
}

fn whole(value: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = value as u64;
    whole
}
