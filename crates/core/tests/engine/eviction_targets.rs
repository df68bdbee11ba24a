//! Which pod an eviction means.

use podward_core::deletion::hold::{
    EvictionCaller, EvictionTarget, HeldEvictions, REPEATED_WITHIN, eviction_target,
};
use podward_core::{Pod, UnixNanos};
use serde_json::json;

const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

fn after(seconds: u64) -> UnixNanos {
    UnixNanos(NOW.0 + i64::try_from(seconds).unwrap() * 1_000_000_000)
}

fn caller(number: usize) -> EvictionCaller {
    EvictionCaller { namespace: "shop".to_owned(), name: format!("db-{number}"), user: "drain".to_owned() }
}

#[test]
fn preconditions_are_compared_as_the_api_server_does() {
    use EvictionTarget::{LaterVersion, Other, ThisPod};
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": "a", "uid": "7", "resourceVersion": "20"}}))
            .unwrap();
    for (uid, version, target) in [
        (None, None, ThisPod),
        (Some(""), Some(""), ThisPod),
        (Some("7"), Some("20"), ThisPod),
        (Some("8"), Some("20"), Other),
        (Some("8"), Some("21"), Other),
        (None, Some("9"), Other),
        (None, Some("020"), Other),
        (None, Some("21"), LaterVersion),
        (None, Some("x"), LaterVersion),
    ] {
        assert_eq!(eviction_target(&pod, uid, version), target, "{uid:?} {version:?}");
    }
}

#[test]
fn a_repeated_eviction_means_the_earlier_pod_for_a_while() {
    let mut held = HeldEvictions::default();
    held.remember(caller(0), "a", NOW);
    assert_eq!(held.meant(&caller(0), "a", NOW), None, "it is the same pod");
    assert_eq!(held.meant(&caller(0), "b", after(1)), Some("a"));
    assert_eq!(held.meant(&caller(1), "b", after(1)), None);
    let last = REPEATED_WITHIN.as_secs();
    assert_eq!(held.meant(&caller(0), "b", after(last - 1)), Some("a"));
    assert_eq!(held.meant(&caller(0), "b", after(last)), None);
    // Each answer begins the time again.
    held.remember(caller(0), "a", after(60));
    assert_eq!(held.meant(&caller(0), "b", after(last)), Some("a"));
}

#[test]
fn the_number_of_remembered_evictions_is_limited() {
    let mut held = HeldEvictions::default();
    for number in 0..5000 {
        held.remember(caller(number), "a", UnixNanos(NOW.0 + i64::try_from(number).unwrap()));
    }
    let remembered = (0..5000).filter(|number| held.meant(&caller(*number), "b", after(1)).is_some()).count();
    assert_eq!(remembered, 4096);
    assert!(
        held.meant(&caller(4999), "b", after(1)).is_some() && held.meant(&caller(0), "b", after(1)).is_none()
    );
}
