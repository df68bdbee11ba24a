//! A simulated kube-proxy that behaves like the real one: two address families, syncs that do not overlap, pauses
//! between them and failures, at random times. What the readings prove must be true.

use proptest::prelude::*;

use super::*;

/// The time from a request to the begin of a sync, in microseconds.
const STARTING: std::ops::Range<i64> = 1..1500;
/// The time from the timestamp of a sync to its end, in microseconds. It is long on a busy node.
const ENDING: std::ops::Range<i64> = 1..500_000;
/// The delay before a failed sync is retried, in microseconds. The default of kube-proxy is ten times as long.
const RETRY_DELAY: i64 = 3_000_000;
const US: i64 = 1000;

#[derive(Clone, Debug)]
struct SyncTimes {
    took: i64,
    ending: i64,
    starting: i64,
    fails: bool,
}

fn sync() -> impl Strategy<Value = SyncTimes> {
    (5_000_i64..400_000, ENDING, STARTING, prop::bool::weighted(0.1))
        .prop_map(|(took, ending, starting, fails)| SyncTimes { took, ending, starting, fails })
}

#[derive(Clone, Debug)]
struct Scenario {
    /// The time of each change in microseconds, and the index of its family.
    changes: Vec<(i64, usize)>,
    syncs: Vec<SyncTimes>,
    /// The pause after each sync, in microseconds.
    pause: i64,
    /// The times of the readings, in microseconds.
    readings: Vec<i64>,
    /// The index of the change that the test waits for, and how much later than kube-proxy the traffic-controller
    /// observes it. It is at most [`WATCH_LAG`] earlier.
    waited: usize,
    lag: i64,
    /// How far the clock of the node is ahead, in microseconds.
    skew: i64,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    (
        prop::collection::vec((0_i64..3_000_000, 0_usize..2), 1..12),
        prop::collection::vec(sync(), 24),
        1_000_i64..1_000_000,
        prop::collection::vec(20_000_i64..250_000, 10..50),
        any::<prop::sample::Index>(),
        -200_000_i64..400_000,
        -5_000_000_i64..5_000_000,
    )
        .prop_map(|(mut changes, syncs, pause, steps, waited, lag, skew)| {
            changes.sort_unstable();
            let readings = steps
                .into_iter()
                .scan(0, |time, step| {
                    *time += step;
                    Some(*time)
                })
                .collect();
            let waited = waited.index(changes.len());
            Scenario { changes, syncs, pause, readings, waited, lag, skew }
        })
}

/// The state of one address family.
#[derive(Clone, Debug, Default)]
struct SimulatedFamily {
    unwritten: Vec<usize>,
    writing: Vec<usize>,
    requested: Option<i64>,
    running: Option<(i64, i64, i64, bool)>,
    free_at: i64,
    reading: FamilyReading,
    retry: bool,
}

#[derive(Clone, Debug)]
struct SimulatedProxy {
    scenario: Scenario,
    next_change: usize,
    next_sync: usize,
    families: [SimulatedFamily; 2],
    pending: u64,
    written: Vec<bool>,
}

impl SimulatedProxy {
    fn new(scenario: Scenario) -> Self {
        let written = vec![false; scenario.changes.len()];
        let mut families: [SimulatedFamily; 2] = Default::default();
        // The first sync of a process writes all rules, so it is the longest.
        let longest = Duration::from_millis(512);
        for family_state in &mut families {
            family_state.reading =
                FamilyReading { synced: -US, queued: -2 * US, syncs: 1, longest, ..family_state.reading };
        }
        Self { scenario, next_change: 0, next_sync: 0, families, pending: 0, written }
    }

    /// Simulates the time from `from` to `time` in steps of 100 microseconds.
    fn run(&mut self, from: i64, time: i64) {
        let mut now = from;
        while now < time {
            now += 100;
            while let Some((arrives, family)) = self.scenario.changes.get(self.next_change).copied()
                && arrives <= now
            {
                let family_state = &mut self.families[family];
                family_state.unwritten.push(self.next_change);
                family_state.reading.queued = now * US;
                family_state.requested.get_or_insert(now);
                self.pending += 1;
                self.next_change += 1;
            }
            for family in 0..2 {
                self.step(family, now);
            }
        }
    }

    fn step(&mut self, family: usize, now: i64) {
        let family_state = &mut self.families[family];
        if let Some((began, stamps, ends, fails)) = family_state.running {
            if now >= stamps && !fails && !family_state.writing.is_empty() {
                for change in family_state.writing.drain(..) {
                    self.written[change] = true;
                }
            }
            if now >= stamps && !fails {
                family_state.reading.synced = family_state.reading.synced.max(stamps * US);
            }
            if now >= ends {
                family_state.reading.syncs += 1;
                family_state.reading.sync_nanos += (ends - began) * US;
                // The histogram has only the upper bound of the bucket.
                let mut bound = Duration::from_millis(1);
                while bound < Duration::from_micros(u64::try_from(ends - began).unwrap()) {
                    bound *= 2;
                }
                family_state.reading.longest = family_state.reading.longest.max(bound);
                family_state.reading.failures += u64::from(fails);
                family_state.running = None;
                family_state.retry = fails;
                family_state.free_at = now + self.scenario.pause;
            }
            return;
        }
        let retries = family_state.retry && now >= family_state.free_at + RETRY_DELAY;
        let starts = family_state.requested.is_some_and(|requested| {
            let sync = &self.scenario.syncs[self.next_sync % self.scenario.syncs.len()];
            now >= family_state.free_at && now >= requested + sync.starting
        });
        if starts || retries {
            let sync = self.scenario.syncs[self.next_sync % self.scenario.syncs.len()].clone();
            self.next_sync += 1;
            family_state.requested = None;
            family_state.retry = false;
            family_state.writing.append(&mut family_state.unwritten);
            // Syncs that always fail would prove nothing.
            let fails = sync.fails && self.next_sync < 12;
            family_state.running = Some((now, now + sync.took, now + sync.took + sync.ending, fails));
            self.pending = 0;
        }
    }

    fn reading(&self, now: i64) -> ProxyReading {
        let skew = self.scenario.skew * US;
        let shifted = |family_state: &SimulatedFamily| FamilyReading {
            synced: at(0).0 + family_state.reading.synced + skew,
            queued: at(0).0 + family_state.reading.queued + skew,
            ..family_state.reading
        };
        let clock = at(0).0 + now * US + skew;
        ProxyReading {
            asked: UnixNanos(at(0).0 + now * US),
            answered: UnixNanos(at(0).0 + now * US),
            node_clock: Some(clock - clock.rem_euclid(1_000_000_000)),
            started: 1.0,
            pending: self.pending,
            families: [Some(shifted(&self.families[0])), Some(shifted(&self.families[1]))],
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn proven_evidence_is_in_the_proxy(scenario in scenario()) {
        let waited = scenario.waited;
        let (received, family) = scenario.changes[waited];
        let seen = UnixNanos(at(0).0 + (received + scenario.lag) * US);
        let mut changed = [None; 2];
        changed[family] = Some(EndpointChange::dated(seen, UnixNanos(seen.0 - 1000 * MS)));
        let mut simulated = SimulatedProxy::new(scenario.clone());
        let mut proxy = KubeProxyState::default();
        let mut from = 0;
        for time in &scenario.readings {
            simulated.run(from, *time);
            from = *time;
            proxy.add_reading(simulated.reading(*time));
            if proxy.rules_state(&changed) == RulesState::Written {
                prop_assert!(simulated.written[waited], "reported as written at {time} µs: {proxy:#?} {simulated:#?}");
            }
        }
    }

    #[test]
    fn a_change_in_the_proxy_is_eventually_proven(mut scenario in scenario()) {
        let waited = scenario.waited;
        let (received, family) = scenario.changes[waited];
        let last = scenario.changes.iter().map(|(time, _)| *time).max().unwrap_or_default();
        scenario.readings = (0..450).map(|step| step * 100_000).collect();
        let seen = UnixNanos(at(0).0 + (received + scenario.lag) * US);
        let mut changed = [None; 2];
        changed[family] = Some(EndpointChange::dated(seen, UnixNanos(seen.0 - 1000 * MS)));
        let mut simulated = SimulatedProxy::new(scenario.clone());
        let mut proxy = KubeProxyState::default();
        let mut from = 0;
        for time in &scenario.readings {
            simulated.run(from, *time);
            from = *time;
            proxy.add_reading(simulated.reading(*time));
        }
        prop_assert!(last < from && simulated.written.iter().all(|written| *written));
        prop_assert_eq!(proxy.rules_state(&changed), RulesState::Written);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// It receives nothing any more from some seconds before the change.
    #[test]
    fn a_proxy_that_is_cut_off_proves_no_later_change(scenario in scenario(), is_listed in any::<bool>()) {
        let (_, family) = scenario.changes[scenario.waited];
        let last = scenario.changes.iter().map(|(time, _)| *time).max().unwrap_or_default();
        let seen = UnixNanos(at(0).0 + (last + 2_500_000 + scenario.lag) * US);
        let mut changed = [None; 2];
        changed[family] = Some(match is_listed {
            true => EndpointChange::undated(seen),
            false => EndpointChange::dated(seen, UnixNanos(seen.0 - 1000 * MS)),
        });
        let mut simulated = SimulatedProxy::new(scenario);
        let mut proxy = KubeProxyState::default();
        let mut from = 0;
        for time in (0..450).map(|step| step * 100_000) {
            simulated.run(from, time);
            from = time;
            proxy.add_reading(simulated.reading(time));
            prop_assert_ne!(proxy.rules_state(&changed), RulesState::Written);
        }
        let state = proxy.rules_state(&changed);
        let is_known = match is_listed {
            true => matches!(state, RulesState::Unconfirmed(_)),
            false => matches!(state, RulesState::Stale(_)),
        };
        prop_assert!(is_known, "{state:?}");
    }
}

/// Endpoints change every 700 ms for 45 s, so kube-proxy is never idle. Returns true if the readings at `readings`, in
/// milliseconds, prove a change at 10 s.
fn is_proven_while_endpoints_change(readings: impl Iterator<Item = i64>) -> bool {
    const CHANGES: i64 = 64;
    let sync = SyncTimes { took: 60_000, ending: 1_000, starting: 500, fails: false };
    let mut simulated = SimulatedProxy::new(Scenario {
        changes: (1..=CHANGES).map(|number| (number * 700_000, 0)).collect(),
        syncs: vec![sync],
        pause: 200_000,
        readings: Vec::new(),
        waited: 15,
        lag: 0,
        skew: 0,
    });
    let seen = UnixNanos(at(0).0 + 10_500_000 * US);
    let changed = [Some(EndpointChange::dated(seen, UnixNanos(seen.0 - 1000 * MS))), None];
    let (mut proxy, mut from) = (KubeProxyState::default(), 0);
    readings.map(|time| time * 1000).take_while(|time| *time < CHANGES * 700_000).any(|time| {
        simulated.run(from, time);
        from = time;
        proxy.add_reading(simulated.reading(time));
        proxy.rules_state(&changed) == RulesState::Written
    })
}

/// So many proxies are read that there are 1.5 s between two readings of one on average.
#[test]
fn pairs_of_readings_prove_a_change_while_endpoints_change_all_the_time() {
    let single = (0..30).map(|number| number * 1500);
    assert!(!is_proven_while_endpoints_change(single));
    let pairs = (0..15).flat_map(|number| [number * 3000, number * 3000 + 100]);
    assert!(is_proven_while_endpoints_change(pairs));
}
