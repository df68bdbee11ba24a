//! A kube-proxy that works as the real one does (two address families, syncs one after the other, pauses between them, failures), at
//! random times: what the readings prove must be so.

use proptest::prelude::*;

use super::*;

/// What kube-proxy spends after it has set its timestamp, and between a request and the begin of a sync; in microseconds.
const OVERHEAD: std::ops::Range<i64> = 1..1500;
/// After a sync that failed; kube-proxy's own default is ten times as long.
const RETRY: i64 = 3_000_000;
const US: i64 = 1000;

#[derive(Clone, Debug)]
struct Sync {
    took: i64,
    ending: i64,
    starting: i64,
    fails: bool,
}

fn sync() -> impl Strategy<Value = Sync> {
    (5_000_i64..400_000, OVERHEAD, OVERHEAD, prop::bool::weighted(0.1))
        .prop_map(|(took, ending, starting, fails)| Sync { took, ending, starting, fails })
}

#[derive(Clone, Debug)]
struct Script {
    /// When changes arrive, in microseconds, and of which family.
    changes: Vec<(i64, usize)>,
    syncs: Vec<Sync>,
    /// The pause after each sync, in microseconds.
    pause: i64,
    /// When it is read.
    readings: Vec<i64>,
    /// Which change is waited for, and how much later than kube-proxy it is seen; at most [`WATCHES`] earlier.
    waited: prop::sample::Index,
    lag: i64,
    /// How far the node's clock is ahead.
    skew: i64,
}

fn script() -> impl Strategy<Value = Script> {
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
            Script { changes, syncs, pause, readings, waited, lag, skew }
        })
}

/// One address family.
#[derive(Clone, Debug, Default)]
struct Half {
    unwritten: Vec<usize>,
    writing: Vec<usize>,
    requested: Option<i64>,
    running: Option<(i64, i64, i64, bool)>,
    free_at: i64,
    reading: FamilyReading,
    retry: bool,
}

#[derive(Clone, Debug)]
struct Simulated {
    script: Script,
    next_change: usize,
    next_sync: usize,
    halves: [Half; 2],
    pending: u64,
    written: Vec<bool>,
}

impl Simulated {
    fn new(script: Script) -> Self {
        let written = vec![false; script.changes.len()];
        let mut halves: [Half; 2] = Default::default();
        // The first sync of a process writes all rules: none takes longer.
        let longest = Duration::from_millis(512);
        for half in &mut halves {
            half.reading = FamilyReading { synced: -US, queued: -2 * US, syncs: 1, longest, ..half.reading };
        }
        Self { script, next_change: 0, next_sync: 0, halves, pending: 0, written }
    }

    /// Lets everything happen until `time`, in steps of 100 microseconds.
    fn run(&mut self, from: i64, time: i64) {
        let mut now = from;
        while now < time {
            now += 100;
            while let Some((arrives, family)) = self.script.changes.get(self.next_change).copied()
                && arrives <= now
            {
                let half = &mut self.halves[family];
                half.unwritten.push(self.next_change);
                half.reading.queued = now * US;
                half.requested.get_or_insert(now);
                self.pending += 1;
                self.next_change += 1;
            }
            for family in 0..2 {
                self.step(family, now);
            }
        }
    }

    fn step(&mut self, family: usize, now: i64) {
        let half = &mut self.halves[family];
        if let Some((began, stamps, ends, fails)) = half.running {
            if now >= stamps && !fails && !half.writing.is_empty() {
                for change in half.writing.drain(..) {
                    self.written[change] = true;
                }
            }
            if now >= stamps && !fails {
                half.reading.synced = half.reading.synced.max(stamps * US);
            }
            if now >= ends {
                half.reading.syncs += 1;
                half.reading.sync_nanos += (ends - began) * US;
                // As the histogram has it: the upper bound of the bucket.
                let mut bound = Duration::from_millis(1);
                while bound < Duration::from_micros(u64::try_from(ends - began).unwrap()) {
                    bound *= 2;
                }
                half.reading.longest = half.reading.longest.max(bound);
                half.reading.failures += u64::from(fails);
                half.running = None;
                half.retry = fails;
                half.free_at = now + self.script.pause;
            }
            return;
        }
        let retries = half.retry && now >= half.free_at + RETRY;
        let starts = half.requested.is_some_and(|requested| {
            let sync = &self.script.syncs[self.next_sync % self.script.syncs.len()];
            now >= half.free_at && now >= requested + sync.starting
        });
        if starts || retries {
            let sync = self.script.syncs[self.next_sync % self.script.syncs.len()].clone();
            self.next_sync += 1;
            half.requested = None;
            half.retry = false;
            half.writing.append(&mut half.unwritten);
            // Failing for ever would prove nothing.
            let fails = sync.fails && self.next_sync < 12;
            half.running = Some((now, now + sync.took, now + sync.took + sync.ending, fails));
            self.pending = 0;
        }
    }

    fn reading(&self, now: i64) -> Reading {
        let skew = self.script.skew * US;
        let shifted = |half: &Half| FamilyReading {
            synced: at(0).0 + half.reading.synced + skew,
            queued: at(0).0 + half.reading.queued + skew,
            ..half.reading
        };
        let clock = at(0).0 + now * US + skew;
        Reading {
            asked: UnixNanos(at(0).0 + now * US),
            answered: UnixNanos(at(0).0 + now * US),
            node_clock: Some(clock - clock.rem_euclid(1_000_000_000)),
            started: 1.0,
            pending: self.pending,
            families: [Some(shifted(&self.halves[0])), Some(shifted(&self.halves[1]))],
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_is_proven_is_so(script in script()) {
        let waited = script.waited.index(script.changes.len());
        let (heard, family) = script.changes[waited];
        let seen = UnixNanos(at(0).0 + (heard + script.lag) * US);
        let mut changed = [None; 2];
        changed[family] = Some(Change { seen, not_before: Some(UnixNanos(seen.0 - 1000 * MS)) });
        let mut simulated = Simulated::new(script.clone());
        let mut proxy = Proxy::default();
        let mut from = 0;
        for time in &script.readings {
            simulated.run(from, *time);
            from = *time;
            proxy.read(simulated.reading(*time));
            if proxy.has(&changed) == TakenIn::Yes {
                prop_assert!(simulated.written[waited], "claimed at {time} µs: {proxy:#?} {simulated:#?}");
            }
        }
    }

    #[test]
    fn what_is_written_is_proven_in_the_end(mut script in script()) {
        let waited = script.waited.index(script.changes.len());
        let (heard, family) = script.changes[waited];
        let last = script.changes.iter().map(|(time, _)| *time).max().unwrap_or_default();
        script.readings = (0..450).map(|step| step * 100_000).collect();
        let seen = UnixNanos(at(0).0 + (heard + script.lag) * US);
        let mut changed = [None; 2];
        changed[family] = Some(Change { seen, not_before: Some(UnixNanos(seen.0 - 1000 * MS)) });
        let mut simulated = Simulated::new(script.clone());
        let mut proxy = Proxy::default();
        let mut from = 0;
        for time in &script.readings {
            simulated.run(from, *time);
            from = *time;
            proxy.read(simulated.reading(*time));
        }
        prop_assert!(last < from && simulated.written.iter().all(|written| *written));
        prop_assert_eq!(proxy.has(&changed), TakenIn::Yes);
    }
}
