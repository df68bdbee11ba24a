use std::collections::HashMap;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn slot(name: &str, holder: Option<&str>, renewed: i64, version: u64) -> Slot {
    Slot {
        name: name.to_owned(),
        holder: holder.map(str::to_owned),
        renewed: Timestamp::from_second(renewed).ok(),
        version: version.to_string(),
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("s{number}")).collect()
}

fn table(slots: &[Slot]) -> SlotTable {
    let mut table = SlotTable::new("me".to_owned(), names(2));
    slots.iter().for_each(|slot| table.observe(slot.clone(), at(0)));
    table
}

/// Records a list that shows what is known.
fn list(table: &mut SlotTable, seconds: u64) {
    let names = table.slots.keys().cloned().collect();
    table.complete(&names, at(seconds));
}

fn taken(step: SlotStep<'_>) -> Option<&str> {
    match step {
        SlotStep::Take(slot) => Some(&slot.name),
        _ => None,
    }
}

#[test]
fn a_free_slot_is_taken_first_and_then_an_expired_one() {
    let mut table = table(&[slot("s0", Some("a"), 1, 1), slot("s1", None, 0, 2)]);
    list(&mut table, 100);
    assert_eq!(taken(table.step()), Some("s1"));
    table.observe(slot("s1", Some("b"), 1, 3), at(100));
    // Whatever the renewal time says: s0 did not change for 100 s.
    assert_eq!(taken(table.step()), Some("s0"));
    assert_eq!(table.members(), ["b"]);
    table.observe(slot("s0", Some("c"), 2, 4), at(101));
    assert_eq!(table.step(), SlotStep::AllTaken);
    assert_eq!(table.members(), ["b", "c"]);
}

#[test]
fn a_slot_that_is_missing_is_created_if_no_other_can_be_taken() {
    assert_eq!(table(&[]).step(), SlotStep::Create("s0"));
    assert_eq!(table(&[slot("s0", Some("a"), 1, 1)]).step(), SlotStep::Create("s1"));
    assert_eq!(taken(table(&[slot("s1", None, 1, 1)]).step()), Some("s1"));
    let mut table = table(&[slot("s0", Some("a"), 1, 1)]);
    list(&mut table, 100);
    assert_eq!(taken(table.step()), Some("s0"), "a has left");
    table.observe(slot("s1", Some("me"), 1, 1), at(100));
    assert!(matches!(table.step(), SlotStep::Renew(_)));
}

#[test]
fn clocks_of_other_machines_do_not_matter() {
    // Their clocks are years behind and ahead.
    let (behind, ahead) = (-1_000_000_000, 9_000_000_000);
    let mut table = table(&[slot("s0", Some("behind"), behind, 1), slot("s1", Some("ahead"), ahead, 1)]);
    for second in 1..60 {
        table.observe(slot("s0", Some("behind"), behind + i64::try_from(second).unwrap(), 1), at(second));
        table.observe(slot("s1", Some("ahead"), ahead + i64::try_from(second).unwrap(), 1), at(second));
        list(&mut table, second);
        assert_eq!(table.members(), ["ahead", "behind"]);
    }
    // A write that renews nothing, such as one of a label, does not count.
    table.observe(slot("s0", Some("behind"), behind + 59, 99), at(70));
    list(&mut table, 70);
    assert_eq!(table.members(), ["ahead", "behind"]);
    list(&mut table, 71);
    assert_eq!(table.members(), Vec::<String>::new());
    // A clock that was set back: what counts is the change.
    table.observe(slot("s0", Some("behind"), behind - 5000, 100), at(72));
    assert_eq!(table.members(), ["behind"]);
}

#[test]
fn a_slot_that_was_given_back_is_left_at_once() {
    let mut table = table(&[slot("s0", Some("a"), 1, 1), slot("s1", Some("me"), 1, 1)]);
    assert_eq!(table.members(), ["a", "me"]);
    table.observe(slot("s0", None, 1, 2), at(1));
    assert_eq!(table.members(), ["me"]);
}

#[test]
fn a_replica_renews_its_slot_until_another_one_takes_it() {
    let mut table = table(&[slot("s0", Some("me"), 1, 1), slot("s1", None, 0, 1)]);
    list(&mut table, 1000);
    assert!(matches!(table.step(), SlotStep::Renew(slot) if slot.name == "s0"));
    // It could not write, and neither could others.
    assert_eq!(table.members(), ["me"]);
    assert!(!table.is_doubtful(at(1000)));
    table.observe(slot("s0", Some("other"), 5, 2), at(1001));
    assert_eq!(taken(table.step()), Some("s1"));
    assert_eq!(table.members(), ["other"]);
    table.forget("s0");
    table.complete(&HashSet::new(), at(1002));
    assert_eq!(table.step(), SlotStep::Create("s0"));
}

#[test]
fn only_a_list_shows_that_a_holder_has_left() {
    let mut table = table(&[slot("s0", Some("a"), 1, 1), slot("s1", Some("b"), 1, 1)]);
    assert!(!table.is_doubtful(at(11)) && table.is_doubtful(at(12)));
    // Nothing was heard for an hour: the watch may be dead.
    assert!(table.is_doubtful(at(3600)));
    assert_eq!(table.members(), ["a", "b"]);
    assert_eq!(table.step(), SlotStep::AllTaken);
    // The list shows a renewal of b.
    table.observe(slot("s1", Some("b"), 2, 9), at(3600));
    assert_eq!(table.members(), ["a", "b"], "the list is not complete");
    list(&mut table, 3600);
    assert_eq!(table.members(), ["b"]);
    assert_eq!(taken(table.step()), Some("s0"));
    assert!(!table.is_doubtful(at(3611)) && table.is_doubtful(at(3612)));
    // A list that began before the time was over shows nothing.
    list(&mut table, 3611);
    assert_eq!(table.members(), ["b"]);
    list(&mut table, 3612);
    assert!(table.members().is_empty() && !table.is_doubtful(at(9999)));
}

/// Replicas with views of different age write against one store. With the precondition, a slot changes its owner only in
/// steps that everybody can see, and no replica ever holds two.
#[test]
fn slots_have_one_owner_under_races() {
    let mut store: BTreeMap<String, Slot> = BTreeMap::new();
    let mut tables: Vec<SlotTable> = (0..6).map(|n| SlotTable::new(format!("r{n}"), names(4))).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let mut version = 0;
    let mut last: HashMap<String, Duration> = HashMap::new();
    for second in 0..400 {
        for table in &mut tables {
            // Some see the store late, and some see changes only.
            if random.bool() {
                store.values().for_each(|slot| table.observe(slot.clone(), at(second)));
                if random.bool() {
                    list(table, second);
                }
            }
            // Some do nothing for a while.
            if random.u8(0..10) == 0 {
                continue;
            }
            let wanted = match table.step() {
                SlotStep::Renew(slot) | SlotStep::Take(slot) => slot.clone(),
                SlotStep::Create(name) => {
                    let stored =
                        store.entry(name.to_owned()).or_insert_with(|| slot(name, None, 0, 0)).clone();
                    table.observe(stored, at(second));
                    continue;
                }
                SlotStep::AllTaken => continue,
            };
            let stored = store.get_mut(&wanted.name).unwrap();
            if stored.version != wanted.version {
                continue;
            }
            let before = stored.holder.clone();
            if before.as_ref().is_some_and(|before| *before != table.own) {
                let silent = at(second).saturating_sub(last[&wanted.name]);
                assert!(silent >= EXPIRY, "taken from {before:?} after {silent:?}");
            }
            version += 1;
            let seconds = i64::try_from(second).unwrap();
            *stored = slot(&wanted.name, Some(&table.own), seconds, version);
            last.insert(wanted.name.clone(), at(second));
            table.observe(stored.clone(), at(second));
            let own = table.own.clone();
            assert!(store.values().filter(|slot| slot.holder.as_ref() == Some(&own)).count() == 1);
        }
    }
    assert!(store.len() == 4 && store.values().all(|slot| slot.holder.is_some()));
}
