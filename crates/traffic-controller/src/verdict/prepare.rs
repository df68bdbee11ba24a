//! PREPARE: let go of the pod.

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::{Bounded, Proven};

use super::parts::{Carriers, Nodes, out_of_slices, taken_in};
use super::{Part, Verdict, Waits};
use crate::clock::{after, between};
use crate::proxy::WATCHES;
use crate::world::{Facts, ServiceFacts, ServiceKind};

/// What is remembered of a question between two looks at it. Lost with the process; then its waits begin again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// When a Service that selects it was first seen to name it in no slice.
    pub(crate) unnamed: Option<UnixNanos>,
    /// When all slices were first seen to show it out.
    pub(crate) out: Option<UnixNanos>,
    /// When the proxies were first seen to have that.
    pub(crate) taken_in: Option<UnixNanos>,
    /// When the pod first said that nothing is in flight, of all times since it said so without a break.
    pub(crate) idle: Option<UnixNanos>,
}

/// What the pod says of requests and connections in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flight {
    /// It has no label that says where to ask.
    NotAsked,
    /// It hasn't been asked yet.
    Unknown,
    /// So many, when it was asked at this time.
    Count(u64, UnixNanos),
    /// It couldn't be asked, because of this.
    Failed(String),
}

/// Whether the Services have let go of the pod.
pub(crate) fn prepare(
    facts: &Facts,
    nodes: &Nodes,
    flight: &Flight,
    progress: &mut Progress,
    waits: &Waits,
    now: UnixNanos,
) -> Verdict {
    let (slices_level, slices) = match out_of_slices(facts) {
        Part::Done(level, words) => (level, words),
        Part::Wait(words, until) => {
            *progress = Progress { unnamed: progress.unnamed, ..Progress::default() };
            return Verdict::pending(words, until);
        }
    };
    // A Service is new to the pod, or the pod to it: the slice that follows may show the pod as it was a moment ago.
    if let Some(service) = facts.services.iter().find(|service| service.selects && service.slices == 0) {
        let end = after(*progress.unnamed.get_or_insert(now), waits.propagation);
        if now < end {
            let reason = format!("{slices}; no EndpointSlice of Service {} names the pod yet", service.key);
            return Verdict::pending(reason, Some(end));
        }
    }
    progress.out.get_or_insert(now);
    let held: Vec<&ServiceFacts> = facts
        .services
        .iter()
        .filter(|service| service.kind != ServiceKind::ExternalName && !service.publishes_not_ready)
        .collect();
    let carriers = Carriers::of(facts, &held).and_former(facts);
    if carriers.is_empty() && *flight == Flight::NotAsked {
        // What it may have left before this process came is that long ago by then.
        let end = facts.unseen.map(|since| after(since, waits.propagation + waits.quiet));
        return match end.filter(|end| now < *end) {
            Some(end) => Verdict::pending(format!("{slices}; it may have left one a moment ago"), Some(end)),
            None => Verdict::done(slices_level, slices),
        };
    }
    let (proxies_level, proxies) = match taken_in(&carriers, nodes, waits, now) {
        Part::Done(level, words) => (level, words),
        Part::Wait(words, until) => {
            progress.taken_in = None;
            return Verdict::pending(format!("{slices}; {words}"), until);
        }
    };
    let since = *progress.taken_in.get_or_insert(now);
    match in_flight(flight, since, progress, waits, now) {
        Part::Done(level, words) => {
            let words: Vec<String> =
                [slices, proxies, words].into_iter().filter(|text| !text.is_empty()).collect();
            Verdict::done(slices_level.max(proxies_level).max(level), words.join("; "))
        }
        Part::Wait(words, until) => Verdict::pending(format!("{slices}; {proxies}; {words}"), until),
    }
}

/// Whether requests in flight have ended, `since` when no new ones come.
fn in_flight(
    flight: &Flight,
    since: UnixNanos,
    progress: &mut Progress,
    waits: &Waits,
    now: UnixNanos,
) -> Part {
    let why = match flight {
        Flight::Unknown => return Part::Wait("asks the pod what is in flight".to_owned(), None),
        Flight::Count(0, at) if *at >= since => {
            let first = *progress.idle.get_or_insert(*at);
            if between(first, *at) >= WATCHES {
                return Part::Done(Proven, "the pod says that nothing is in flight".to_owned());
            }
            return Part::Wait("the pod says once that nothing is in flight".to_owned(), None);
        }
        Flight::Count(0, _) => return Part::Wait("asks the pod again what is in flight".to_owned(), None),
        Flight::Count(count, _) => {
            progress.idle = None;
            return Part::Wait(format!("the pod says that {count} are in flight"), None);
        }
        Flight::Failed(why) => {
            progress.idle = None;
            format!(" (the pod doesn't say what is in flight: {why})")
        }
        Flight::NotAsked => String::new(),
    };
    let (end, seconds) = (after(since, waits.quiet), waits.quiet.as_secs_f64());
    if now >= end {
        return Part::Done(Bounded, format!("{seconds} s for requests in flight{why}"));
    }
    let gone = between(since, now).as_secs_f64();
    Part::Wait(format!("waits for requests in flight ({gone:.1} of {seconds} s){why}"), Some(end))
}
