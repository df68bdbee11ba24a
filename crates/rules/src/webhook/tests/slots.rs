//! How calls share the slots.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;

use futures::FutureExt;
use podward_api::pod_transition_rule::WebhookUrl;
use proptest::prelude::*;

use super::super::call_queue::{CallPlace, CallQueue};
use super::super::call_slots::{CallSlot, CallSlots};

fn url(server: &str) -> WebhookUrl {
    WebhookUrl::parse(&format!("https://{server}.example/check")).unwrap()
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Option<CallSlot>> + 'a>>;

/// Asks for a slot. Returns it if it is free, or what waits for it.
fn ask<'a>(slots: &'a CallSlots, namespace: &'a str, url: &'a WebhookUrl) -> Result<CallSlot, Waiting<'a>> {
    let mut waiting: Waiting<'a> = Box::pin(slots.take(namespace, url));
    match waiting.as_mut().now_or_never() {
        Some(slot) => Ok(slot.unwrap()),
        None => Err(waiting),
    }
}

#[test]
fn slow_rules_of_one_namespace_leave_slots_for_the_others() {
    let slots = CallSlots::default();
    let servers: Vec<WebhookUrl> = (0..64).map(|number| url(&format!("slow-{number}"))).collect();
    // None of the calls ends. 8 of the 64 have begun.
    let (begun, waiting): (Vec<_>, Vec<_>) =
        servers.iter().map(|server| ask(&slots, "attacker", server)).partition(Result::is_ok);
    assert_eq!((begun.len(), waiting.len()), (8, 56));
    for _ in 0..8 {
        let server = url("own");
        assert!(ask(&slots, "victim", &server).is_ok(), "a call of another namespace begins at once");
    }
}

#[test]
fn slow_rules_of_many_namespaces_leave_a_slot_for_each_of_the_others() {
    let slots = CallSlots::default();
    let servers: Vec<WebhookUrl> = (0..8).map(|number| url(&format!("slow-{number}"))).collect();
    let names: Vec<String> = (0..40).map(|number| format!("attacker-{number}")).collect();
    let mut calls = Vec::new();
    for name in &names[..6] {
        calls.extend(servers.iter().map(|server| ask(&slots, name, server)));
    }
    assert_eq!(calls.iter().filter(|call| call.is_ok()).count(), 48);
    // The last slots are for the first call of a namespace.
    let own = url("own");
    let victim = ask(&slots, "victim", &own);
    assert!(victim.is_ok() && ask(&slots, "victim", &own).is_err());
    drop(victim);
    assert!(ask(&slots, "victim", &own).is_ok());
}

#[test]
fn calls_of_one_namespace_to_the_server_of_another_do_not_block_it() {
    let (slots, server) = (CallSlots::default(), url("victim"));
    let calls: Vec<_> = (0..20).map(|_| ask(&slots, "attacker", &server)).collect();
    assert_eq!(calls.iter().filter(|call| call.is_ok()).count(), 4);
    let others = ["b", "c", "d"].map(|name| (0..5).map(|_| ask(&slots, name, &server)).collect::<Vec<_>>());
    assert!(others.iter().all(|calls| calls[0].is_ok()));
    assert!(ask(&slots, "victim", &server).is_ok());
    // And a slow server leaves room for the other rules of the namespace.
    let other = url("other");
    assert!(ask(&slots, "attacker", &other).is_ok());
}

#[test]
fn namespaces_take_turns() {
    let (slots, server) = (CallSlots::default(), url("shared"));
    let mut begun: Vec<CallSlot> = ["x", "y"]
        .into_iter()
        .flat_map(|name| (0..4).map(move |_| name))
        .filter_map(|name| ask(&slots, name, &server).ok())
        .collect();
    assert_eq!(begun.len(), 8);
    // Each has one call, which the reserve lets in; the further ones wait.
    let names = ["a", "a", "a", "a", "b", "b", "c"];
    let mut waiting = Vec::new();
    for name in names {
        match ask(&slots, name, &server) {
            Ok(slot) => begun.push(slot),
            Err(call) => waiting.push((name, call)),
        }
    }
    assert_eq!(waiting.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "a", "a", "b"]);
    // The reserve has to be free again before a second call begins.
    let mut order = Vec::new();
    while !waiting.is_empty() {
        drop(begun.remove(0));
        waiting.retain_mut(|(name, call)| match call.as_mut().now_or_never() {
            Some(slot) => {
                order.push(*name);
                begun.extend(slot);
                false
            }
            None => true,
        });
    }
    assert_eq!(order, ["a", "b", "a", "a"]);
}

#[test]
fn calls_that_are_not_wanted_any_more_leave_the_queue() {
    let (slots, server) = (CallSlots::default(), url("slow"));
    let begun: Vec<_> = (0..4).filter_map(|_| ask(&slots, "shop", &server).ok()).collect();
    let (first, second) = (ask(&slots, "shop", &server), ask(&slots, "shop", &server));
    drop(first);
    drop(begun);
    // The second one has the slot, even though nobody has looked yet.
    assert!(second.err().unwrap().now_or_never().flatten().is_some());
    // A slot that came too late is free again.
    let begun: Vec<_> = (0..4).filter_map(|_| ask(&slots, "shop", &server).ok()).collect();
    let late = ask(&slots, "shop", &server);
    drop(begun);
    drop(late);
    assert_eq!((0..5).filter_map(|_| ask(&slots, "shop", &server).ok()).collect::<Vec<_>>().len(), 4);
}

#[derive(Clone, Debug)]
enum Step {
    Push { namespace: u8, server: u8 },
    End(prop::sample::Index),
    Remove(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (0u8..12, 0u8..12).prop_map(|(namespace, server)| Step::Push { namespace, server });
    let step = prop_oneof![
        3 => push,
        1 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => any::<prop::sample::Index>().prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 0..160)
}

proptest! {
    /// The limits hold, no call is lost, and a call waits only while a limit is reached.
    #[test]
    fn calls_wait_only_for_a_limit(steps in steps()) {
        let mut queue: CallQueue<u64> = CallQueue::default();
        let (mut waiting, mut running): (BTreeMap<u64, CallPlace>, Vec<CallPlace>) = Default::default();
        for (id, step) in (0u64..).zip(steps) {
            match step {
                Step::Push { namespace, server } => {
                    let server = (format!("s{server}"), 443);
                    let place = CallPlace { namespace: format!("n{namespace}"), server };
                    queue.push(&place, id, id);
                    waiting.insert(id, place);
                }
                Step::End(index) if !running.is_empty() => {
                    queue.ended(&running.swap_remove(index.index(running.len())));
                }
                Step::Remove(index) if !waiting.is_empty() => {
                    let id = *index.get(&waiting.keys().copied().collect::<Vec<_>>());
                    queue.remove(&waiting[&id], id);
                    waiting.remove(&id);
                }
                Step::End(_) | Step::Remove(_) => {}
            }
            while let Some((place, id)) = queue.start_next() {
                let waited = waiting.remove(&id);
                prop_assert_eq!(waited.as_ref(), Some(&place));
                running.push(place);
            }
            prop_assert_eq!((queue.waiting(), queue.in_flight()), (waiting.len(), running.len()));
            let count = |is: &dyn Fn(&CallPlace) -> bool| running.iter().filter(|place| is(place)).count();
            prop_assert!(running.len() <= 64);
            for place in running.iter().collect::<BTreeSet<_>>() {
                prop_assert!(count(&|other| other.namespace == place.namespace) <= 8);
                prop_assert!(count(&|other| other.server == place.server) <= 16);
                prop_assert!(count(&|other| other == place) <= 4);
            }
            for place in waiting.values() {
                let own = count(&|other| other.namespace == place.namespace);
                let at_server = count(&|other| other.server == place.server);
                let at_place = count(&|other| other == place);
                let is_limited = running.len() >= 48 || own >= 8 || at_server >= 8 || at_place >= 4;
                prop_assert!(is_limited, "{place:?} waits for nothing");
                // The reserve: only a full reserve keeps a namespace without a call waiting.
                if own == 0 {
                    prop_assert!(running.len() >= 64 || at_server >= 16, "{place:?} waits though it has no call");
                }
            }
        }
    }
}
