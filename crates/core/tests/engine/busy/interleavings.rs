//! Random interleavings of busy periods and operations.

use std::collections::BTreeMap;

use podward_core::busy::BusyClaim;
use podward_core::keys::Stage;
use proptest::prelude::*;

use super::{SECOND, START, Worker, at};

#[derive(Clone, Debug)]
enum Event {
    Begins(usize),
    /// The webhook takes its step within the operator's write.
    WebhookSees,
    Busy(i64),
    Done,
    Garbage,
    Looks,
    Passes(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0_usize..3).prop_map(Event::Begins),
        Just(Event::WebhookSees),
        (-20_i64..300).prop_map(Event::Busy),
        Just(Event::Done),
        Just(Event::Garbage),
        Just(Event::Looks),
        (0_i64..60).prop_map(Event::Passes),
    ]
}

proptest! {
    #[test]
    fn no_permission_before_done_or_maximum_and_one_after(events in prop::collection::vec(event(), 1..60)) {
        let mut worker = Worker::new();
        let mut now = 0;
        let mut announced: BTreeMap<&str, i64> = BTreeMap::new();
        const IDS: [&str; 3] = ["a", "b", "c"];
        for event in events {
            match event {
                Event::Begins(number) if !worker.has(Stage::Operating, IDS[number]) => worker.begin(IDS[number], at(now)),
                Event::Begins(_) => {}
                Event::WebhookSees => {
                    let changes = podward_core::advance(None, &worker.view(), at(now));
                    changes.apply(&mut worker.labels);
                }
                Event::Busy(length) => worker.until = Some(at(now + length).to_rfc3339()),
                Event::Done => worker.until = None,
                Event::Garbage => worker.until = Some("soon".to_owned()),
                Event::Passes(seconds) => now += seconds,
                Event::Looks => {
                    let before = worker.clone();
                    let (_, overruns) = worker.look(at(now));
                    let work = BusyClaim::of(&before.view()).at(at(now));
                    let mut past = 0;
                    for id in IDS {
                        if worker.has(Stage::PreChecked, id) && !before.has(Stage::PreChecked, id) && work.is_some() {
                            let since = announced.get(id).copied().unwrap_or(now);
                            prop_assert!(now >= since + 100, "{id} at {now}, announced at {since}, {work:?}");
                            past += 1;
                        }
                    }
                    prop_assert_eq!(overruns, past, "each that goes on all the same is on record, and no other");
                    prop_assert!(worker.clone().look(at(now)).0.is_empty(), "at rest");
                }
            }
            for id in IDS {
                if worker.has(Stage::PreCheck, id) {
                    announced.entry(id).or_insert(now);
                }
            }
        }
        // A worker that never ends is interrupted all the same, by looks at the times that were asked for alone.
        worker.until = Some(at(1_000_000).to_rfc3339());
        for _ in 0..10 {
            let Some(wake) = worker.look(at(now)).0.wake else { break };
            prop_assert!(wake > at(now) && wake <= at(now + 100), "{wake:?} at {now}");
            now = wake.0 / SECOND - START;
        }
        for id in IDS {
            prop_assert!(!worker.has(Stage::Operating, id) || worker.has(Stage::PreChecked, id), "{id} waits");
        }
    }
}
