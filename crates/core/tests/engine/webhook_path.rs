//! The secret in the paths of the webhooks: no review of the API server is refused, whatever lags behind.

use std::time::Duration;

use podward_core::webhook_path::{
    InvalidPathSecret, PathSecret, RotationTimes, UpcomingSecret, WebhookPathState, rotate, route_of, split,
    without_webhook_secrets,
};
use proptest::collection::vec;
use proptest::prelude::*;

const OVERLAP: u64 = 10;
const TIMES: RotationTimes =
    RotationTimes { interval: Duration::from_secs(4 * OVERLAP), overlap: Duration::from_secs(OVERLAP) };
const START: u64 = 1_700_000_000;

fn secret(number: u8) -> PathSecret {
    PathSecret::of_random([number; 32])
}

/// Each version of an object, and when it was written.
struct History<T>(Vec<(u64, T)>);

impl<T: Clone> History<T> {
    /// Returns the version that an observer knows whose watch is `lag` seconds behind.
    fn seen(&self, now: u64, lag: u64) -> (usize, &T) {
        let seen = self.0.iter().rposition(|(at, _)| *at <= now.saturating_sub(lag)).unwrap_or_default();
        (seen, &self.0[seen].1)
    }

    fn write(&mut self, now: u64, version: usize, value: T) -> bool {
        let is_latest = version + 1 == self.0.len();
        if is_latest {
            self.0.push((now, value));
        }
        is_latest
    }
}

/// What happens in a second.
#[derive(Clone, Debug)]
struct Second {
    /// The lag of the replica that acts, for the Secret and each configuration. `None` if no replica acts.
    replica: Option<[u64; 3]>,
    /// Whether the API server takes writes of configurations.
    writable: bool,
    /// Something removes the path of this configuration, as an upgrade with older manifests does.
    reset: Option<usize>,
}

fn second() -> impl Strategy<Value = Second> {
    let lag = || 0..OVERLAP;
    let replica = proptest::option::weighted(0.8, [lag(), lag(), lag()]);
    let reset = proptest::option::weighted(0.02, 0..2usize);
    (replica, proptest::bool::weighted(0.8), reset).prop_map(|(replica, writable, reset)| Second {
        replica,
        writable,
        reset,
    })
}

struct World {
    stored: History<Option<WebhookPathState>>,
    /// The secrets in the paths of two configurations.
    used: [History<Option<PathSecret>>; 2],
    secrets: u8,
}

impl World {
    fn new() -> Self {
        let empty = || History(vec![(0, None)]);
        World { stored: History(vec![(0, None)]), used: [empty(), empty()], secrets: 0 }
    }

    fn act(&mut self, now: u64, second: &Second) {
        if let Some(reset) = second.reset {
            self.used[reset].0.push((now, None));
        }
        let Some([lag, first, other]) = second.replica else { return };
        let (version, stored) = self.stored.seen(now, lag);
        let used = [self.used[0].seen(now, first), self.used[1].seen(now, other)]
            .map(|(version, used)| (version, used.clone()));
        let in_use: Vec<_> = used.iter().filter_map(|(_, used)| used.clone()).collect();
        let secrets = &mut self.secrets;
        let turn = rotate(stored.as_ref(), &in_use, now, TIMES, || {
            *secrets = secrets.wrapping_add(1);
            secret(*secrets)
        });
        if turn.change.is_some() && !self.stored.write(now, version, Some(turn.state.clone())) {
            return;
        }
        for (configuration, (version, used)) in self.used.iter_mut().zip(used) {
            let wanted = turn.state.wanted(used.as_ref());
            if second.writable && wanted.is_some() {
                configuration.write(now, version, wanted.cloned());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Replicas, webhooks and API servers are up to the overlap behind, and replicas and writes fail at times. Each
    /// path that an API server knows is accepted by each webhook.
    #[test]
    fn no_review_is_refused_during_rotations(seconds in vec(second(), 240)) {
        let mut world = World::new();
        for (now, second) in (START..).zip(&seconds) {
            world.act(now, second);
            for lag in 0..OVERLAP {
                let Some(known) = world.stored.seen(now, lag).1 else { continue };
                prop_assert!(known.accepted().count() <= 3);
                for used in &world.used {
                    for api_server in 0..OVERLAP {
                        if let Some(path) = used.seen(now, api_server).1 {
                            // Except before the first secret: a webhook is not ready until it knows one.
                            prop_assert!(known.accepted().any(|secret| secret == path), "{known:?} {path:?}");
                        }
                    }
                }
            }
        }
    }
}

/// With a replica at work, each secret comes to an end, and its successor is known for the overlap before it is used.
#[test]
fn every_secret_is_replaced_in_time() {
    let mut world = World::new();
    let calm = Second { replica: Some([0; 3]), writable: true, reset: None };
    let mut seen: Vec<(PathSecret, u64, u64)> = Vec::new();
    for now in START..START + 1000 {
        world.act(now, &calm);
        for secret in world.stored.0.last().unwrap().1.as_ref().unwrap().accepted() {
            match seen.iter_mut().find(|(known, ..)| known == secret) {
                Some((_, _, last)) => *last = now,
                None => seen.push((secret.clone(), now, now)),
            }
        }
    }
    assert!(seen.len() > 15, "{seen:?}");
    for (_, first, last) in seen {
        assert!(last - first <= TIMES.interval.as_secs() + 4 * OVERLAP + 5, "{first} {last}");
    }
}

fn calm(state: &WebhookPathState, used: &[PathSecret], now: u64) -> WebhookPathState {
    rotate(Some(state), used, now, TIMES, || secret(99)).state
}

#[test]
fn a_deleted_secret_is_replaced_without_a_gap() {
    let turn = rotate(None, &[secret(1), secret(1)], START, TIMES, || secret(2));
    let next = Some(UpcomingSecret { secret: secret(2), since: START });
    assert_eq!((&turn.state.current, &turn.state.next), (&secret(1), &next));
    assert_eq!(turn.next_step, Some(START + OVERLAP));
    // It is lost while the configurations are being changed.
    let turn = rotate(None, &[secret(1), secret(3)], START, TIMES, || secret(2));
    let accepted: Vec<_> = turn.state.accepted().cloned().collect();
    assert_eq!(accepted, [secret(1), secret(2), secret(3)]);
    let first = rotate(None, &[], START, TIMES, || secret(2)).state;
    assert_eq!(first.accepted().collect::<Vec<_>>(), [&secret(2)]);
    assert_eq!(calm(&first, &[secret(2)], START + 39), first);
}

#[test]
fn the_previous_secret_stays_until_no_entry_uses_it() {
    let first = rotate(None, &[], START, TIMES, || secret(1)).state;
    let announced = calm(&first, &[secret(1)], START + 40);
    assert_eq!(announced.current, secret(1));
    let promoted = calm(&announced, &[secret(1)], START + 50);
    assert_eq!(promoted.current, secret(99));
    // The API server takes no writes for an hour.
    assert_eq!(calm(&promoted, &[secret(1)], START + 3600), promoted);
    let ending = calm(&promoted, &[secret(99)], START + 3600);
    assert_eq!(ending.previous.as_ref().unwrap().until, Some(START + 3610));
    let again = calm(&ending, &[secret(99), secret(1)], START + 3700);
    assert_eq!(again.previous.as_ref().unwrap().until, None);
    assert_eq!(calm(&ending, &[secret(99)], START + 3609), ending);
    let ended = calm(&ending, &[secret(99)], START + 3610);
    assert_eq!(ended.accepted().collect::<Vec<_>>(), [&secret(99)]);
}

/// A clock that was a year ahead must not stop the rotation for a year.
#[test]
fn times_in_the_future_are_corrected() {
    let year = START + 365 * 86_400;
    let first = rotate(None, &[secret(1)], year, TIMES, || secret(2)).state;
    let corrected = calm(&first, &[secret(1)], START);
    assert_eq!((corrected.since, corrected.next.as_ref().unwrap().since), (START, START));
    let mut ending = corrected;
    ending.next = None;
    ending.previous =
        Some(podward_core::webhook_path::RetiringSecret { secret: secret(7), until: Some(year) });
    let until = calm(&ending, &[secret(1)], START).previous.unwrap().until;
    assert_eq!(until, Some(START + 2 * OVERLAP), "the current secret is used since START");
}

#[test]
fn the_state_is_stored_and_read_again() {
    let mut state = rotate(None, &[secret(1), secret(3)], START, TIMES, || secret(2)).state;
    for until in [None, Some(START)] {
        if let Some(previous) = &mut state.previous {
            previous.until = until;
        }
        let data = state.data();
        assert_eq!(WebhookPathState::read(|key| data.get(key).map(String::as_str)), Ok(state.clone()));
    }
    let read = |pairs: &[(&str, &str)]| {
        WebhookPathState::read(|key| pairs.iter().find(|(name, _)| *name == key).map(|(_, text)| *text))
    };
    assert_eq!(read(&[]), Err(InvalidPathSecret::Missing));
    assert_eq!(read(&[("current", "")]), Err(InvalidPathSecret::Missing));
    assert_eq!(read(&[("current", "secret")]), Err(InvalidPathSecret::Text));
    let good = "a".repeat(64);
    assert_eq!(
        read(&[("current", &good), ("current-since", "soon")]),
        Err(InvalidPathSecret::Time("current-since"))
    );
    assert_eq!(read(&[("current", &good), ("next", "short")]), Err(InvalidPathSecret::Text));
    assert!(read(&[("current", &good)]).is_ok());
}

#[test]
fn secrets_are_not_shown() {
    let state = rotate(None, &[secret(1)], START, TIMES, || secret(2)).state;
    let shown = format!("{state:?}");
    assert!(!shown.contains("0101") && !shown.contains("0202"), "{shown}");
    let path = secret(171).path("/delete");
    let error = format!(
        "failed calling webhook \"delete.validating.podward.io\": failed to call webhook: Post \
         \"https://validating-webhook.podward-system.svc:443{path}?timeout=10s\": EOF"
    );
    let clean = without_webhook_secrets(&error);
    assert!(clean.contains(".svc:443/<secret>/delete?timeout=10s") && !clean.contains("abab"), "{clean}");
    assert_eq!(without_webhook_secrets("pods \"a/b\" not found"), "pods \"a/b\" not found");
}

#[test]
fn only_whole_secrets_are_read_from_paths() {
    let path = secret(1).path("/mutate");
    assert_eq!(PathSecret::of_path(&path, "/mutate"), Some(secret(1)));
    assert_eq!(PathSecret::of_path(&path, "/inject"), None);
    for other in ["/mutate", "//mutate", "/abc/mutate", "", "/", &path.to_uppercase()] {
        assert_eq!(PathSecret::of_path(other, "/mutate"), None, "{other}");
    }
    for none in ["mutate", "/mutate", "//mutate", "/a", "/a/", ""] {
        assert_eq!(split(none), None, "{none}");
    }
    assert_eq!(split("/a/b/c"), Some(("a", "/b/c")));
    assert_eq!(route_of("eviction-elsewhere.validating.podward.io"), Some("/evict"));
    assert_eq!(route_of("other.podward.io"), None);
}
