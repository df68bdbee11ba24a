use std::time::Duration;

use podward_core::UnixNanos;
use proptest::prelude::*;

use super::*;

mod simulated;

const MS: i64 = 1_000_000;

fn at(milliseconds: i64) -> UnixNanos {
    UnixNanos(1_700_000_000_000 * MS + milliseconds * MS)
}

/// A reading at a time, of IPv4 alone: when it last synced and queued, how many syncs took how long.
fn reading(time: i64, pending: u64, synced: i64, queued: i64, syncs: u64, took: i64) -> Reading {
    let family = FamilyReading {
        synced: at(synced).0,
        queued: at(queued).0,
        syncs,
        sync_nanos: took * MS,
        longest: Duration::from_millis(64),
        failures: 0,
    };
    Reading {
        asked: at(time),
        answered: at(time + 2),
        node_clock: None,
        started: 1.0,
        pending,
        families: [Some(family), None],
    }
}

fn changed(time: i64) -> [Option<Change>; 2] {
    [Some(Change { seen: at(time), not_before: Some(at(time - 1000)) }), None]
}

fn proxy(readings: impl IntoIterator<Item = Reading>) -> Proxy {
    let mut proxy = Proxy::default();
    readings.into_iter().for_each(|reading| proxy.read(reading));
    proxy
}

#[test]
fn a_sync_that_began_after_the_change_proves_it_at_once() {
    // Queued at 1000, the sync took from 1030 to 1060.
    let before = reading(900, 0, 500, 400, 7, 210);
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    let mut proxy = proxy([before, now(1210)]);
    assert_ne!(
        proxy.has(&changed(1005)),
        TakenIn::Yes,
        "it may be the timestamp of a sync that isn't counted yet"
    );
    proxy.read(now(1310));
    assert_eq!(proxy.has(&changed(1005)), TakenIn::Yes);
}

#[test]
fn a_proxy_that_is_never_at_rest_proves_what_it_had_heard() {
    // It was read at 1230 when the last change had been queued at 1220. A sync took from 1990 to 2000; more is queued and pending.
    let heard = reading(1230, 1, 1060, 1220, 8, 240);
    let now = |time, queued| reading(time, 7, 2000, queued, 9, 250);
    let proxy = proxy([heard, now(2010, 2005), now(2120, 2110)]);
    assert_eq!(proxy.has(&changed(1005)), TakenIn::Yes);
    assert!(
        matches!(proxy.has(&changed(1100)), TakenIn::NotYet(why) if why.contains("7 changes are pending"))
    );
}

#[test]
fn a_sync_that_failed_proves_nothing() {
    // Queued at 1000 while a sync took from 990 to 1060; the next one failed at 1100.
    let before = reading(900, 0, 500, 400, 7, 210);
    let between = reading(1080, 0, 1060, 1000, 8, 280);
    let failed = |time| {
        let mut reading = reading(time, 0, 1060, 1000, 9, 285);
        reading.families[0].as_mut().unwrap().failures = 1;
        reading
    };
    for earlier in [vec![before.clone(), between], vec![before], vec![]] {
        let mut proxy = proxy(earlier.into_iter().chain([failed(1210), failed(1310), failed(9000)]));
        let TakenIn::NotYet(why) = proxy.has(&changed(1005)) else { panic!("{proxy:?}") };
        assert!(why.contains("idle for 7788 ms of 30064 ms"), "{why}");
        // It would have tried again by now.
        proxy.read(failed(31_400));
        assert_eq!(proxy.has(&changed(1005)), TakenIn::Yes);
    }
}

#[test]
fn a_sync_that_began_before_the_change_proves_nothing() {
    // The sync took from 990 to 1060, and the change was queued at 1000; the next one is under way, so nothing is pending.
    let before = reading(900, 0, 500, 400, 7, 210);
    let now = |time| reading(time, 0, 1060, 1000, 8, 280);
    let proxy = proxy([before, now(1210), now(1600), now(5000)]);
    let TakenIn::NotYet(why) = proxy.has(&changed(1005)) else { panic!("{proxy:?}") };
    assert!(why.contains("during its last sync"), "{why}");
}

#[test]
fn without_an_earlier_reading_it_is_idleness_that_proves() {
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    assert!(
        matches!(proxy([now(1210), now(1400)]).has(&changed(1005)), TakenIn::NotYet(why) if why.contains("idle"))
    );
    // 200 ms, and a second in which kube-proxy may let a change wait.
    assert_eq!(proxy([now(1210), now(1400), now(2500)]).has(&changed(1005)), TakenIn::Yes);
}

#[test]
fn what_is_pending_or_failing_is_said() {
    let why = |reading| match proxy([reading]).has(&changed(1005)) {
        TakenIn::NotYet(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(reading(1300, 3, 1060, 1000, 8, 240)).contains("3 changes are pending"));
    assert!(why(reading(1300, 0, 500, 1000, 9, 240)).contains("queued 0.50 s after"));
    assert!(
        why(reading(1100, 0, 1060, 1000, 8, 240)).contains("since the change"),
        "too soon after the change"
    );
    assert!(
        matches!(Proxy::default().has(&changed(1)), TakenIn::NotYet(why) if why.contains("not read yet"))
    );
}

#[test]
fn a_proxy_that_has_heard_of_nothing_has_taken_in_nothing() {
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    let deaf = proxy([now(9000), now(10_100)]);
    assert!(matches!(deaf.has(&changed(10_000)), TakenIn::NotYet(why) if why.contains("since the change")));
    let deaf = proxy([now(9000), now(11_000), now(12_000)]);
    assert!(matches!(deaf.has(&changed(10_000)), TakenIn::Unheard(why) if why.contains("9.0 s")));
    let unknown = [Some(Change { seen: at(10_000), not_before: None }), None];
    assert_eq!(deaf.has(&unknown), TakenIn::Yes, "a change of unknown age may have been long ago");
}

#[test]
fn the_node_s_clock_may_be_wrong() {
    // It is an hour ahead: 3,600,000 ms.
    let hour = 3_600_000;
    let ahead = |mut reading: Reading| {
        reading.node_clock = Some(reading.answered.0 + hour * MS);
        reading
    };
    let proxy = proxy([
        ahead(reading(900, 0, 500 + hour, 400 + hour, 7, 210)),
        ahead(reading(1210, 0, 1060 + hour, 1000 + hour, 8, 240)),
        ahead(reading(20_000, 0, 1060 + hour, 1000 + hour, 8, 240)),
    ]);
    assert_eq!(proxy.has(&changed(1005)), TakenIn::Yes);
    assert!(matches!(proxy.has(&changed(15_000)), TakenIn::Unheard(_)));
}

#[test]
fn a_new_process_starts_from_nothing() {
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    let mut proxy = proxy([reading(900, 0, 500, 400, 7, 210), now(1210), now(1295)]);
    assert_eq!(proxy.has(&changed(1005)), TakenIn::Yes);
    proxy.read(Reading { started: 2.0, ..reading(1300, 1, 0, 1290, 0, 0) });
    assert!(matches!(proxy.has(&changed(1005)), TakenIn::NotYet(_)));
}

#[test]
fn a_proxy_that_fails_is_unreadable_unless_it_was_there() {
    let refused = || Failure { why: "refused".to_owned(), hangs: false };
    let mut proxy = Proxy::default();
    proxy.failed(refused());
    assert_eq!(proxy.has(&changed(0)), TakenIn::Unreadable("refused".to_owned()));
    proxy.read(reading(900, 0, 500, 400, 7, 210));
    proxy.read(reading(1210, 0, 1060, 1000, 8, 240));
    proxy.read(reading(1310, 0, 1060, 1000, 8, 240));
    proxy.failed(refused());
    assert_eq!(proxy.has(&changed(1005)), TakenIn::Yes, "what was proven stays so");
    assert_eq!(proxy.has(&changed(1390)), TakenIn::Silent("refused".to_owned()));
    let mut hangs = Proxy::default();
    hangs.failed(Failure { why: "no answer".to_owned(), hangs: true });
    assert_eq!(hangs.has(&changed(0)), TakenIn::Silent("no answer".to_owned()));
}

#[test]
fn a_family_that_the_proxy_does_not_know_is_nothing_to_wait_for() {
    let proxy = proxy([reading(1500, 0, 1060, 1000, 8, 240)]);
    let v6 = [None, Some(Change { seen: at(1000), not_before: Some(at(0)) })];
    assert_eq!(proxy.has(&v6), TakenIn::Yes);
}

#[test]
fn kube_proxy_s_own_text_is_read() {
    let text = include_str!("tests/kube-proxy-1.36.txt");
    let date = Some("Sat, 21 Nov 2026 14:01:34 GMT");
    let reading = Reading::parse(text, date, UnixNanos(1), UnixNanos(2)).unwrap();
    let v4 = reading.families[0].unwrap();
    assert_eq!((reading.pending, v4.syncs), (0, 1));
    assert_eq!(v4.sync_nanos, 179_454_351);
    assert_eq!(v4.longest, Duration::from_millis(256));
    assert!(v4.synced > v4.queued && v4.synced - v4.queued < 1_000_000_000);
    assert_eq!(reading.families[1].unwrap().longest, Duration::from_millis(128));
    assert_eq!(reading.node_clock, Some(1_795_269_694_000_000_000));
    assert!(Reading::parse("go_threads 4\n", None, UnixNanos(1), UnixNanos(2)).is_err());
}

proptest! {
    #[test]
    fn no_answer_makes_it_fail(text in "(kubeproxy_sync_proxy_rules_[a-z_]{0,30}(\\{[^\n]{0,40}\\})? [^\n]{0,20}\n|[^\n]{0,40}\n){0,20}", date in ".{0,40}") {
        if let Ok(reading) = Reading::parse(&text, Some(&date), at(0), at(1)) {
            let mut proxy = Proxy::default();
            proxy.read(reading);
            let _ = proxy.has(&changed(0));
        }
    }
}
