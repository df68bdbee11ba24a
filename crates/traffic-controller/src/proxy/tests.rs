use std::time::Duration;

use podward_core::UnixNanos;
use proptest::prelude::*;

use super::reading::FamilyReading;
use super::*;
use crate::index::{ApiServers, EndpointChange};
use crate::receipt::Receipt;

mod simulated;

const MS: i64 = 1_000_000;

fn at(milliseconds: i64) -> UnixNanos {
    UnixNanos(1_700_000_000_000 * MS + milliseconds * MS)
}

/// Returns a reading of IPv4 alone: when kube-proxy last synced and queued, the number of syncs and their total
/// duration.
fn reading(time: i64, pending: u64, synced: i64, queued: i64, syncs: u64, took: i64) -> ProxyReading {
    let family = FamilyReading {
        synced: at(synced).0,
        queued: at(queued).0,
        syncs,
        sync_nanos: took * MS,
        longest: Duration::from_millis(64),
        failures: 0,
    };
    ProxyReading {
        asked: at(time),
        answered: at(time + 2),
        node_clock: None,
        started: 1.0,
        pending,
        families: [Some(family), None],
    }
}

fn changed(time: i64) -> [Option<EndpointChange>; 2] {
    [Some(EndpointChange::dated(at(time), at(time - 1000))), None]
}

fn proxy(readings: impl IntoIterator<Item = ProxyReading>) -> KubeProxyState {
    let mut proxy = KubeProxyState::default();
    readings.into_iter().for_each(|reading| proxy.add_reading(reading));
    proxy
}

#[test]
fn a_sync_that_began_after_the_change_proves_it_at_once() {
    // Queued at 1000, the sync ran from 1030 to 1060.
    let before = reading(900, 0, 500, 400, 7, 210);
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    let mut proxy = proxy([before, now(1210)]);
    assert_ne!(
        proxy.rules_state(&changed(1005)),
        RulesState::Written,
        "the timestamp may belong to a sync that is not counted yet"
    );
    proxy.add_reading(now(1310));
    assert_eq!(proxy.rules_state(&changed(1005)), RulesState::Written);
}

#[test]
fn a_busy_proxy_proves_the_changes_that_it_received_before() {
    // At the reading at 1230 the last change was queued at 1220. A sync ran from 1990 to 2000; more changes are
    // pending.
    let earlier = reading(1230, 1, 1060, 1220, 8, 240);
    let now = |time, queued| reading(time, 7, 2000, queued, 9, 250);
    let proxy = proxy([earlier, now(2010, 2005), now(2120, 2110)]);
    assert_eq!(proxy.rules_state(&changed(1005)), RulesState::Written);
    assert!(
        matches!(proxy.rules_state(&changed(1100)), RulesState::Pending(why) if why.contains("7 changes are pending"))
    );
}

#[test]
fn a_sync_that_failed_proves_nothing() {
    // Queued at 1000 while a sync ran from 990 to 1060; the next one failed at 1100.
    let before = reading(900, 0, 500, 400, 7, 210);
    let between = reading(1080, 0, 1060, 1000, 8, 280);
    let failed = |time| {
        let mut reading = reading(time, 0, 1060, 1000, 9, 285);
        reading.families[0].as_mut().unwrap().failures = 1;
        reading
    };
    for earlier in [vec![before.clone(), between], vec![before], vec![]] {
        let mut proxy = proxy(earlier.into_iter().chain([failed(1210), failed(1310), failed(9000)]));
        let RulesState::Pending(why) = proxy.rules_state(&changed(1005)) else { panic!("{proxy:?}") };
        assert!(why.contains("idle for 7788 ms of 30064 ms"), "{why}");
        // kube-proxy would have retried by now.
        proxy.add_reading(failed(31_400));
        assert_eq!(proxy.rules_state(&changed(1005)), RulesState::Written);
    }
}

#[test]
fn a_sync_that_began_before_the_change_proves_nothing() {
    // The sync ran from 990 to 1060, and the change was queued at 1000. The next sync runs, so nothing is pending.
    let before = reading(900, 0, 500, 400, 7, 210);
    let now = |time| reading(time, 0, 1060, 1000, 8, 280);
    let proxy = proxy([before, now(1210), now(1600), now(2800)]);
    let RulesState::Pending(why) = proxy.rules_state(&changed(1005)) else { panic!("{proxy:?}") };
    assert!(why.contains("idle for 1588 ms of 1640 ms"), "{why}");
}

/// A busy node: the sync wrote its timestamp at 1060 and ended at 1085. By its duration it seems to have begun at 975.
#[test]
fn a_sync_that_ends_long_after_its_timestamp_holds_nothing_back() {
    // Queued at 999, the sync ran from 1000.
    let before = reading(900, 0, 500, 400, 7, 210);
    let now = |time| reading(time, 0, 1060, 999, 8, 295);
    let mut proxy = proxy([before, now(1210), now(1600)]);
    let RulesState::Pending(why) = proxy.rules_state(&changed(1005)) else { panic!("{proxy:?}") };
    assert!(why.contains("idle for 388 ms of 1640 ms"), "{why}");
    // The next sync would have ended by now.
    proxy.add_reading(now(3000));
    assert_eq!(proxy.rules_state(&changed(1005)), RulesState::Written);
}

/// The sync began at 1190, set its timestamp at 1450, and then deletes UDP flows: it is not counted yet. The change
/// was queued at 1200, while it ran. By the duration of the sync before it seems to have begun at 1430.
#[test]
fn a_timestamp_of_a_sync_that_is_not_counted_yet_proves_nothing() {
    let mut proxy = proxy([
        reading(900, 0, 500, 400, 7, 210),
        reading(1000, 0, 950, 930, 8, 230),
        reading(1250, 1, 950, 1200, 8, 230),
        reading(1500, 1, 1450, 1200, 8, 230),
        reading(1600, 1, 1450, 1200, 8, 230),
    ]);
    assert_ne!(proxy.rules_state(&changed(1205)), RulesState::Written);
    // It is counted, and the next sync writes the change.
    proxy.add_reading(reading(1700, 0, 1450, 1200, 9, 700));
    assert_ne!(proxy.rules_state(&changed(1205)), RulesState::Written);
    proxy.add_reading(reading(1800, 0, 1750, 1200, 10, 740));
    proxy.add_reading(reading(1900, 0, 1750, 1200, 10, 740));
    assert_eq!(proxy.rules_state(&changed(1205)), RulesState::Written);
}

#[test]
fn without_an_earlier_reading_only_idleness_proves_it() {
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    let state = proxy([now(1210), now(1400)]).rules_state(&changed(1005));
    assert!(matches!(state, RulesState::Pending(why) if why.contains("idle")));
    // 200 ms, and the second for which kube-proxy may delay a change.
    assert_eq!(proxy([now(1210), now(1400), now(2500)]).rules_state(&changed(1005)), RulesState::Written);
}

#[test]
fn with_several_api_servers_a_proof_is_about_what_was_received() {
    let why = |receipt: Receipt, proxy: &KubeProxyState| match receipt.rules_state(proxy, &changed(1005)) {
        RulesState::Written => "written".to_owned(),
        RulesState::Unconfirmed(why) | RulesState::Pending(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    // It lags: it has not received the change, and is idle.
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    let mut lagging = proxy([reading(900, 0, 500, 400, 7, 210), now(1210), now(1310), now(3000)]);
    assert_eq!(why(Receipt::new(ApiServers::One, false, || panic!()), &lagging), "written");
    for (servers, text) in
        [(ApiServers::Several(3), "one of 3 API"), (ApiServers::Unknown, "unknown number of API")]
    {
        let unknown = why(Receipt::new(servers, false, || Err("no canary".to_owned())), &lagging);
        assert!(unknown.contains(text) && unknown.contains("which may lag: no canary"), "{unknown}");
    }
    // It received the change before 2900, but its readings after that are too few.
    let received = || Receipt::new(ApiServers::Several(3), false, || Ok(at(2900)));
    assert!(why(received(), &lagging).contains("since the change"));
    let written = |time| reading(time, 0, 2950, 2890, 9, 270);
    lagging.add_reading(written(3110));
    lagging.add_reading(written(3400));
    assert_eq!(why(received(), &lagging), "written");
}

#[test]
fn the_settings_of_the_process_count() {
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    let settings = ProxySettings { min_sync_period: Duration::from_secs(7), ..ProxySettings::default() };
    let mut slow = proxy([now(1210)]);
    assert!(!slow.knows_settings_of(1.0));
    slow.set_settings(settings);
    assert!(slow.knows_settings_of(1.0) && !slow.knows_settings_of(2.0));
    slow.add_reading(now(2500));
    let RulesState::Pending(why) = slow.rules_state(&changed(1005)) else { panic!("{slow:?}") };
    assert!(why.contains("idle for 1288 ms of 7200 ms"), "{why}");
    slow.add_reading(now(8500));
    assert_eq!(slow.rules_state(&changed(1005)), RulesState::Written);
    slow.add_reading(ProxyReading { started: 2.0, ..now(9000) });
    assert!(!slow.knows_settings_of(2.0), "the next process may have others");
}

#[test]
fn the_reason_names_pending_changes_and_failures() {
    let why = |reading| match proxy([reading]).rules_state(&changed(1005)) {
        RulesState::Pending(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(reading(1300, 3, 1060, 1000, 8, 240)).contains("3 changes are pending"));
    assert!(why(reading(1300, 0, 500, 1000, 9, 240)).contains("queued 0.50 s after"));
    assert!(
        why(reading(1100, 0, 1060, 1000, 8, 240)).contains("since the change"),
        "too soon after the change"
    );
    let state = KubeProxyState::default().rules_state(&changed(1));
    assert!(matches!(state, RulesState::Pending(why) if why.contains("not read yet")));
}

#[test]
fn a_proxy_that_received_no_update_is_stale() {
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    let stale = proxy([now(9000), now(10_100)]);
    assert!(
        matches!(stale.rules_state(&changed(10_000)), RulesState::Pending(why) if why.contains("since the change"))
    );
    let stale = proxy([now(9000), now(11_000), now(12_000)]);
    assert!(matches!(stale.rules_state(&changed(10_000)), RulesState::Stale(why) if why.contains("9.0 s")));
}

/// The traffic-controller was restarted, or its watch was interrupted. A kube-proxy that is cut off from the API server
/// still answers.
#[test]
fn a_change_of_unknown_age_is_confirmed_by_a_later_update() {
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    let mut proxy = proxy([now(9000), now(11_000), now(12_000)]);
    let unknown = [Some(EndpointChange::undated(at(10_000))), None];
    let RulesState::Unconfirmed(why) = proxy.rules_state(&unknown) else { panic!("{proxy:?}") };
    assert_eq!(&*why, "it has received no update since the traffic-controller listed the slices");
    // The other family is worse.
    let both = [changed(10_000)[0], unknown[0]];
    let mut dual = KubeProxyState::default();
    for mut reading in [now(9000), now(11_000), now(13_000)] {
        reading.families[1] = reading.families[0];
        dual.add_reading(reading);
    }
    assert!(matches!(dual.rules_state(&both), RulesState::Stale(_)), "{dual:?}");
    let received = Receipt::new(ApiServers::Several(3), false, || Ok(at(10_500)));
    assert_eq!(received.rules_state(&proxy, &unknown), RulesState::Written, "the canary confirms it");
    let update = |time| reading(time, 0, 13_060, 13_000, 9, 270);
    proxy.add_reading(update(13_200));
    proxy.add_reading(update(13_300));
    assert_eq!(proxy.rules_state(&unknown), RulesState::Written);
}

#[test]
fn the_node_s_clock_may_be_wrong() {
    // The clock of the node is an hour ahead: 3,600,000 ms.
    let hour = 3_600_000;
    let ahead = |mut reading: ProxyReading| {
        reading.node_clock = Some(reading.answered.0 + hour * MS);
        reading
    };
    let proxy = proxy([
        ahead(reading(900, 0, 500 + hour, 400 + hour, 7, 210)),
        ahead(reading(1210, 0, 1060 + hour, 1000 + hour, 8, 240)),
        ahead(reading(20_000, 0, 1060 + hour, 1000 + hour, 8, 240)),
    ]);
    assert_eq!(proxy.rules_state(&changed(1005)), RulesState::Written);
    assert!(matches!(proxy.rules_state(&changed(15_000)), RulesState::Stale(_)));
}

#[test]
fn readings_of_an_earlier_process_do_not_count() {
    let now = |time| reading(time, 0, 1060, 1000, 8, 240);
    let mut proxy = proxy([reading(900, 0, 500, 400, 7, 210), now(1210), now(1295)]);
    assert_eq!(proxy.rules_state(&changed(1005)), RulesState::Written);
    proxy.add_reading(ProxyReading { started: 2.0, ..reading(1300, 1, 0, 1290, 0, 0) });
    assert!(matches!(proxy.rules_state(&changed(1005)), RulesState::Pending(_)));
}

#[test]
fn a_proxy_that_cannot_be_read_is_unreadable_unless_it_was_reachable() {
    let refused = || ReadFailure { why: "refused".to_owned(), hangs: false };
    let mut proxy = KubeProxyState::default();
    proxy.add_failure(refused());
    assert_eq!(proxy.rules_state(&changed(0)), RulesState::Unreadable("refused".into()));
    proxy.add_reading(reading(900, 0, 500, 400, 7, 210));
    proxy.add_reading(reading(1210, 0, 1060, 1000, 8, 240));
    proxy.add_reading(reading(1310, 0, 1060, 1000, 8, 240));
    proxy.add_failure(refused());
    assert_eq!(proxy.rules_state(&changed(1005)), RulesState::Written, "a proof remains valid");
    assert_eq!(proxy.rules_state(&changed(1390)), RulesState::Unresponsive("refused".into()));
    let mut hangs = KubeProxyState::default();
    hangs.add_failure(ReadFailure { why: "no response".to_owned(), hangs: true });
    assert_eq!(hangs.rules_state(&changed(0)), RulesState::Unresponsive("no response".into()));
}

#[test]
fn a_family_without_metrics_is_unreadable() {
    let mut proxy = proxy([reading(1500, 0, 1060, 1000, 8, 240)]);
    let v6 = [None, Some(EndpointChange::dated(at(1000), at(0)))];
    assert!(matches!(proxy.rules_state(&v6), RulesState::Unreadable(why) if why.contains("IPv6")));
    // Before 1.33 the metrics have no label.
    let text = include_str!("tests/kube-proxy-1.36.txt").replace("ip_family=\"IPv4\"", "").replace("{}", "");
    let old = ProxyReading::parse(&text.replace("ip_family=\"IPv6\"", ""), None, at(9000), at(9001)).unwrap();
    assert_eq!(old.families, [None, None]);
    proxy.add_reading(ProxyReading { started: 1.0, ..old });
    assert!(matches!(proxy.rules_state(&changed(8000)), RulesState::Unreadable(why) if why.contains("1.33")));
}

#[test]
fn metrics_of_kube_proxy_are_parsed() {
    let text = include_str!("tests/kube-proxy-1.36.txt");
    let date = Some("Sat, 21 Nov 2026 14:01:34 GMT");
    let reading = ProxyReading::parse(text, date, UnixNanos(1), UnixNanos(2)).unwrap();
    let v4 = reading.families[0].unwrap();
    assert_eq!((reading.pending, v4.syncs), (0, 1));
    assert_eq!(v4.sync_nanos, 179_454_351);
    assert_eq!(v4.longest, Duration::from_millis(256));
    assert!(v4.synced > v4.queued && v4.synced - v4.queued < 1_000_000_000);
    assert_eq!(reading.families[1].unwrap().longest, Duration::from_millis(128));
    assert_eq!(reading.node_clock, Some(1_795_269_694_000_000_000));
    assert!(ProxyReading::parse("go_threads 4\n", None, UnixNanos(1), UnixNanos(2)).is_err());
    let needed: Vec<&str> = text.lines().filter(|line| ProxyReading::is_needed(line.as_bytes())).collect();
    let of_needed = ProxyReading::parse(&needed.join("\n"), date, UnixNanos(1), UnixNanos(2));
    assert_eq!(of_needed, Ok(reading), "the lines that are not needed make no difference");
    assert!(!ProxyReading::is_needed(b"go_threads 4\n"));
}

/// Lines that look like metrics of kube-proxy, and other lines.
const METRICS_TEXT: &str =
    "(kubeproxy_sync_proxy_rules_[a-z_]{0,30}(\\{[^\n]{0,40}\\})? [^\n]{0,20}\n|[^\n]{0,40}\n){0,20}";

/// Returns a page with these numbers.
fn page(numbers: &[&str]) -> String {
    const NAMES: [&str; 7] = [
        "endpoint_changes_pending",
        "service_changes_pending",
        "last_timestamp_seconds",
        "last_queued_timestamp_seconds",
        "duration_seconds_count",
        "duration_seconds_sum",
        "nftables_sync_failures_total",
    ];
    let line = |(name, number): (&str, &&str)| {
        format!("kubeproxy_sync_proxy_rules_{name}{{ip_family=\"IPv4\"}} {number}\n")
    };
    let bucket = |number: &&str| {
        let labels = format!("ip_family=\"IPv4\",le=\"{number}\"");
        format!("kubeproxy_sync_proxy_rules_duration_seconds_bucket{{{labels}}} 1\n")
    };
    let lines = NAMES.into_iter().zip(numbers).map(line);
    lines.chain(numbers.last().map(bucket)).collect()
}

/// Not only kube-proxy can answer at its address.
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "0.5",
    "60",
    "1700000000",
    "9.2e9",
    "1.8446744073709549e19",
    "1e300",
    "-1e300",
    "+Inf",
    "NaN",
];

proptest! {
    #[test]
    fn no_numbers_stop_the_process(
        numbers in prop::collection::vec(prop::collection::vec(prop::sample::select(&NUMBERS[..]), 8), 1..5),
        date in prop::sample::select(&["Sat, 21 Nov 2026 14:01:34 GMT", "Wed, 30 Nov 1700 00:00:00 GMT", ""][..]),
        settings in prop::sample::select(&[r#"{"minSyncPeriod":"1h"}"#, r#"{"minSyncPeriod":"2562047788015215h"}"#][..]),
    ) {
        let mut proxy = KubeProxyState::default();
        for (time, numbers) in (0..).zip(numbers) {
            if let Ok(reading) = ProxyReading::parse(&page(&numbers), Some(date), at(time * 1000), at(time * 1000 + 1)) {
                proxy.add_reading(reading);
            }
            if let Ok(settings) = ProxySettings::parse(settings) {
                proxy.set_settings(settings);
            }
            let _ = proxy.rules_state(&changed(500));
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_without_a_panic(text in METRICS_TEXT, date in ".{0,40}") {
        if let Ok(reading) = ProxyReading::parse(&text, Some(&date), at(0), at(1)) {
            let mut proxy = KubeProxyState::default();
            proxy.add_reading(reading);
            let _ = proxy.rules_state(&changed(0));
        }
    }
}
