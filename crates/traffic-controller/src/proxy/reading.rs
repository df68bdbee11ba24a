//! One reading of the metrics of a kube-proxy.

use std::time::Duration;

use podward_core::UnixNanos;

use crate::index::AddressFamily;

const START_PREFIX: &str = "process_start_time_seconds ";
const METRIC_PREFIX: &str = "kubeproxy_sync_proxy_rules_";
/// The duration for syncs in the bucket `+Inf`. It is longer than the last bound of the histogram, 16.4 s.
const UNBOUNDED: Duration = Duration::from_secs(60);

/// The metrics at one time. Times of the node are nanoseconds since the Unix epoch by the clock of the node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProxyReading {
    /// When the request was sent, by the clock of this process.
    pub(crate) asked: UnixNanos,
    /// When the response was complete, by the clock of this process.
    pub(crate) answered: UnixNanos,
    /// The clock of the node at that time, in whole seconds. `None` if the response has no header `Date`.
    pub(crate) node_clock: Option<i64>,
    /// When kube-proxy started, in seconds. It distinguishes the process from its predecessor.
    pub(crate) started: f64,
    /// The number of changes of EndpointSlices and Services that no sync has begun to write.
    pub(crate) pending: u64,
    /// The metrics of each address family. `None` if the response has none of the family: kube-proxy does not handle it,
    /// or is older than 1.33 and does not tell the families apart.
    pub(crate) families: [Option<FamilyReading>; AddressFamily::COUNT],
}

/// The metrics of one address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilyReading {
    /// The end of the last successful sync.
    pub(crate) synced: i64,
    /// When a sync was last requested.
    pub(crate) queued: i64,
    /// The number of syncs that have ended.
    pub(crate) syncs: u64,
    /// The total duration of these syncs, in nanoseconds.
    pub(crate) sync_nanos: i64,
    /// An upper bound for the duration of each of these syncs.
    pub(crate) longest: Duration,
    /// The number of syncs that failed.
    pub(crate) failures: u64,
}

impl ProxyReading {
    /// Returns true if [`parse`](Self::parse) uses the line.
    pub(crate) fn is_needed(line: &[u8]) -> bool {
        line.starts_with(METRIC_PREFIX.as_bytes()) || line.starts_with(START_PREFIX.as_bytes())
    }

    /// Parses the Prometheus text `text` of a response with the header `date`.
    ///
    /// # Errors
    /// Fails if the text does not contain the metrics of kube-proxy.
    pub(crate) fn parse(
        text: &str,
        date: Option<&str>,
        asked: UnixNanos,
        answered: UnixNanos,
    ) -> Result<Self, String> {
        let node_clock = date
            .and_then(|date| jiff::fmt::rfc2822::parse(date).ok())
            .and_then(|date| i64::try_from(date.timestamp().as_nanosecond()).ok())
            .filter(|at| *at >= 0);
        let mut reading = Self {
            asked,
            answered,
            node_clock,
            started: 0.0,
            pending: 0,
            families: [None; AddressFamily::COUNT],
        };
        let mut known = false;
        let mut buckets = [HighestBucket::default(); AddressFamily::COUNT];
        for line in text.lines() {
            if let Some(value) = line.strip_prefix(START_PREFIX) {
                reading.started = number(value).unwrap_or_default();
            } else if let Some(line) = line.strip_prefix(METRIC_PREFIX) {
                known |= reading.parse_line(line, &mut buckets);
            }
        }
        if !known {
            return Err(format!(
                "the response has no metric {METRIC_PREFIX}endpoint_changes_pending; check that the URL is kube-proxy's"
            ));
        }
        for (family, bucket) in reading.families.iter_mut().zip(buckets) {
            if let Some(family) = family {
                family.longest = bucket.bound;
            }
        }
        Ok(reading)
    }

    /// Parses a line without [`METRIC_PREFIX`]. Returns true for a metric that every kube-proxy has.
    fn parse_line(&mut self, line: &str, buckets: &mut [HighestBucket; AddressFamily::COUNT]) -> bool {
        let Some((name, value)) =
            line.rsplit_once(' ').and_then(|(name, value)| Some((name, number(value)?)))
        else {
            return false;
        };
        let (name, labels) = name.split_once('{').unwrap_or((name, ""));
        if matches!(name, "endpoint_changes_pending" | "service_changes_pending") {
            self.pending = self.pending.saturating_add(whole(value));
            return true;
        }
        let Some(family) = label(labels, "ip_family")
            .and_then(|text| AddressFamily::ALL.into_iter().find(|family| family.as_str() == text))
        else {
            return false;
        };
        let reading = self.families[family.index()].get_or_insert_default();
        match name {
            "last_timestamp_seconds" => reading.synced = to_nanos(value),
            "last_queued_timestamp_seconds" => reading.queued = to_nanos(value),
            "duration_seconds_count" => reading.syncs = whole(value),
            "duration_seconds_sum" => reading.sync_nanos = to_nanos(value),
            // These metrics exist after the first failure.
            "nftables_sync_failures_total" | "iptables_restore_failures_total" => {
                reading.failures = whole(value)
            }
            "duration_seconds_bucket" => {
                // The buckets are cumulative: the last bucket whose count exceeds that of its predecessor bounds all
                // syncs.
                let bucket = &mut buckets[family.index()];
                if whole(value) > bucket.count {
                    let bound = label(labels, "le").and_then(number).unwrap_or_default();
                    *bucket = HighestBucket {
                        count: whole(value),
                        bound: Duration::try_from_secs_f64(bound)
                            .map_or(UNBOUNDED, |bound| bound.min(UNBOUNDED)),
                    };
                }
            }
            _ => {}
        }
        false
    }

    /// Returns true if nothing changed between the two readings.
    pub(super) fn has_same_values(&self, other: &ProxyReading) -> bool {
        self.pending == other.pending && self.families == other.families
    }

    /// Returns true if the readings show no activity of `family` from this reading to the reading `later`.
    pub(super) fn is_idle_until(&self, later: &ProxyReading, family: AddressFamily) -> bool {
        let index = family.index();
        let values = self.families[index].as_ref().zip(later.families[index].as_ref());
        self.pending == 0
            && values.is_some_and(|(one, other)| {
                one.syncs == other.syncs && one.queued == other.queued && one.synced == other.synced
            })
    }

    /// Returns true if `pending == 0` means that no change of `family` is pending: no sync of another family has reset
    /// the number since the last change.
    pub(super) fn pending_is_reliable(&self, family: AddressFamily) -> bool {
        let Some(ours) = &self.families[family.index()] else { return true };
        let mut others = AddressFamily::ALL.into_iter().filter(|other| *other != family);
        others.all(|other| {
            self.families[other.index()]
                .as_ref()
                .is_none_or(|other| other.synced < ours.queued && other.queued <= other.synced)
        })
    }

    /// Converts a time of the node's clock to the clock of this process. The result is an upper bound, because the
    /// clock of the node is known only in whole seconds, from the header `Date`.
    pub(super) fn in_local_time(&self, time: i64) -> UnixNanos {
        let ahead = self.node_clock.map_or(0, |node| node - self.answered.0);
        UnixNanos(time - ahead)
    }
}

/// The highest bucket of a histogram that contains a sync.
#[derive(Clone, Copy, Default)]
struct HighestBucket {
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

/// Converts seconds to nanoseconds. Whoever answers instead of kube-proxy can send any number, so it is limited: the sum and
/// the difference of two of them are numbers, too.
fn to_nanos(seconds: f64) -> i64 {
    // The cast saturates, and converts NaN to 0.
    #[allow(clippy::cast_possible_truncation)]
    let nanos = (seconds * 1e9) as i64;
    nanos.clamp(0, i64::MAX / 4)
}

/// Returns a number without its fraction, limited as in [`to_nanos`].
fn whole(value: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = value as u64;
    whole.min(u64::MAX / 4)
}
