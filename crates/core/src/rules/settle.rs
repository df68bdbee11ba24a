//! Who gets room: one decision about all rule sets and pods of a namespace.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::asking::Asking;
use super::judge::{Answers, Judgement, Refusal, Subject};
use super::ledger::{GRANTS_LIMIT, Grant, Ledger};
use super::policy::AvailablePolicy;
use super::{Check, RuleSet};

/// A rule set, and what counts for its budgets.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// The rule set.
    pub set: &'a RuleSet,
    /// Its ledger, as it is stored.
    pub ledger: &'a Ledger,
    /// How many pods its owners want that don't exist: for each owner of a selected pod the replicas that it wants, less its pods; never
    /// less than none.
    pub missing: u32,
    /// Whether the pods were read after the ledger's last write, or are known to whoever wrote it, who is the one that decides now. Where
    /// they were not nothing is given and nothing dropped.
    pub is_current: bool,
}

/// A pod of the namespace. Those that are being deleted, have run to their end or haven't opted in are not among them.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The pod.
    pub pod: Subject<'a>,
    /// What it asks for; see [`askings`](super::askings).
    pub askings: &'a [Asking],
    /// The rule sets that select it: places in the list of them, each once, in ascending order.
    pub sets: &'a [usize],
}

/// What all who are asked besides rules (hooks, and whoever else) say to an asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Nobody knows yet: nothing is given, and what was given stays.
    Unheard,
    /// None of them refuses.
    Agree,
    /// Somebody refuses.
    Refuse,
}

/// How a rule set's budgets stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The pods that it selects.
    pub selected: u32,
    /// Those that are unavailable.
    pub unavailable: u32,
    /// Those that are available still, and were given room.
    pub granted: u32,
    /// [`Budget::missing`].
    pub missing: u32,
}

/// What one rule set says to one asking of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The pod: its place in the list of members.
    pub member: usize,
    /// The asking: its place in [`Member::askings`].
    pub asking: usize,
    /// The rule set: its place in the list of them.
    pub set: usize,
    /// The rules that it has passed.
    pub passed: Vec<String>,
    /// All that it hasn't, and why.
    pub refusals: Vec<Refusal>,
    /// The webhook rules that are to be asked about it.
    pub ask: Vec<String>,
}

/// What comes of a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// For each rule set its new ledger, if it is to be written. What was given counts once that is done, and not before.
    pub ledgers: Vec<Option<Ledger>>,
    /// For each rule set how it stands, with what was given now.
    pub rooms: Vec<Room>,
    /// What is said to each asking, in the order of members.
    pub verdicts: Vec<Verdict>,
    /// Askings (member, place in its askings) that were given room in a rule set and are refused all the same: they are to be put anew,
    /// with another time, so that the room is free again. That happens when two who decide meet, or somebody refuses late.
    pub renew: Vec<(usize, usize)>,
}

/// Decides who of `members` gets room in the budgets of `sets`, which are all of one namespace. `me` is who decides, see
/// [`Ledger::holder`].
///
/// Total and deterministic. With the ledgers that it gives in place, and the pods as they were, it gives nothing more to write.
///
/// # Guarantees
/// - In no rule set are more pods given room than there is room for, counting those that are unavailable, missing, or were given room.
/// - An asking gets room in all rule sets that it needs it in, or in none; and only when nobody else refuses.
/// - Of two askings for which there is room the older gets it first: by the time that they ask since, then the pod's name.
/// - No grant is dropped while its asking stands.
#[must_use]
pub fn settle(
    me: &str,
    sets: &[Budget<'_>],
    members: &[Member<'_>],
    answers: &dyn Answers,
    others: &dyn Fn(&Subject<'_>, &Asking) -> Others,
) -> Settlement {
    let mut books = open(sets, members);
    let mut verdicts = Vec::new();
    let mut claims = Vec::new();
    let mut renew = Vec::new();
    for (member, at) in members.iter().enumerate() {
        for (place, asking) in at.askings.iter().enumerate() {
            let judged: Vec<(usize, Judgement)> =
                at.sets.iter().map(|set| (*set, sets[*set].set.judge(&at.pod, asking, answers))).collect();
            let claim = Claim { member, place, first: verdicts.len() };
            // A webhook that has not been asked, as by a controller that is new, has refused nothing.
            let refused =
                |(_, judgement): &(usize, Judgement)| judgement.refusals.len() > judgement.ask.len();
            let is_refused = judged.iter().any(refused);
            let is_asked = judged.iter().any(|(_, judgement)| !judgement.ask.is_empty());
            let is_held = judged.iter().any(|(set, judgement)| {
                !judgement.budgets.is_empty() && sets[*set].ledger.has(at.pod.uid, asking)
            });
            let others = others(&at.pod, asking);
            let budgets: Vec<(usize, Vec<usize>)> =
                judged.iter().map(|(set, judgement)| (*set, judgement.budgets.clone())).collect();
            for (set, judgement) in judged {
                let Judgement { passed, refusals, ask, .. } = judgement;
                verdicts.push(Verdict { member, asking: place, set, passed, refusals, ask });
            }
            match () {
                () if is_refused || others == Others::Refuse => {
                    if is_held {
                        renew.push((member, place));
                    }
                    claims.push((claim, budgets, false));
                }
                () => claims.push((claim, budgets, others == Others::Agree && !is_asked)),
            }
        }
    }
    claims.sort_by_cached_key(|(claim, ..)| {
        let Member { pod, askings, .. } = &members[claim.member];
        let asking = &askings[claim.place];
        (asking.since(), pod.name, pod.uid, asking.clone())
    });
    for (claim, budgets, is_ready) in &claims {
        let Member { pod, askings, .. } = &members[claim.member];
        let asking = &askings[claim.place];
        let needs = budgets
            .iter()
            .filter(|(set, places)| !places.is_empty() && !sets[*set].ledger.has(pod.uid, asking));
        let needs: Vec<&(usize, Vec<usize>)> = needs.collect();
        let grant = Grant::new(pod.name, pod.uid, asking);
        let lacks = |(set, places): &(usize, Vec<usize>)| books[*set].lacks(&sets[*set], places, &grant);
        let mut lacking: BTreeMap<usize, Vec<Refusal>> =
            needs.iter().map(|need| (need.0, lacks(need))).collect();
        let has_room = lacking.values().all(Vec::is_empty);
        if *is_ready && has_room {
            needs.iter().for_each(|(set, _)| books[*set].give(grant.clone()));
            lacking.clear();
        } else if *is_ready
            && needs.len() < budgets.iter().filter(|(_, places)| !places.is_empty()).count()
            && needs.iter().all(|(set, _)| sets[*set].is_current)
        {
            renew.push((claim.member, claim.place));
        }
        let of_claim = &mut verdicts[claim.first..claim.first + budgets.len()];
        for (verdict, (_, places)) in of_claim.iter_mut().zip(budgets) {
            let names = places.iter().map(|place| &sets[verdict.set].set.rules[*place].name);
            match lacking.remove(&verdict.set) {
                Some(refusals) if !refusals.is_empty() => verdict.refusals.extend(refusals),
                Some(_) => verdict.refusals.extend(names.map(|name| Refusal::new(name, LATER))),
                None => verdict.passed.extend(names.cloned()),
            }
        }
    }
    renew.sort_unstable();
    renew.dedup();
    let rooms = books.iter().map(|book| book.room).collect();
    let ledgers = books.into_iter().zip(sets).map(|(book, budget)| book.close(me, budget.ledger)).collect();
    Settlement { ledgers, rooms, verdicts, renew }
}

/// What is said where there would be room, but not for an asking that can't use it.
const LATER: &str = "there is room, which is given once nobody else refuses";

/// An asking, and where its verdicts begin: one for each rule set that selects the pod, in the order that they stand in there.
struct Claim {
    member: usize,
    place: usize,
    first: usize,
}

/// The account of one rule set during a decision.
struct Book {
    grants: Vec<Grant>,
    /// UIDs of available pods that were given room.
    granted: HashSet<String>,
    bytes: usize,
    room: Room,
}

fn open(sets: &[Budget<'_>], members: &[Member<'_>]) -> Vec<Book> {
    let by_uid: HashMap<&str, &Member<'_>> = members.iter().map(|member| (member.pod.uid, member)).collect();
    let stands = |grant: &Grant| {
        by_uid
            .get(grant.uid.as_str())
            .is_some_and(|member| member.askings.iter().any(|asking| grant.is_for(member.pod.uid, asking)))
    };
    let mut books: Vec<Book> = Vec::with_capacity(sets.len());
    for budget in sets {
        let kept = budget.ledger.grants().iter().filter(|grant| !budget.is_current || stands(grant));
        let grants: Vec<Grant> = kept.cloned().collect();
        let bytes = grants.iter().map(Grant::bytes).sum();
        let room = Room { missing: budget.missing, ..Room::default() };
        books.push(Book { grants, granted: HashSet::new(), bytes, room });
    }
    for member in members {
        for set in member.sets {
            let book = &mut books[*set];
            book.room.selected += 1;
            book.room.unavailable += u32::from(!member.pod.is_available());
        }
    }
    for (place, book) in books.iter_mut().enumerate() {
        let counts = |grant: &&Grant| {
            by_uid
                .get(grant.uid.as_str())
                .is_some_and(|member| member.pod.is_available() && member.sets.binary_search(&place).is_ok())
        };
        book.granted = book.grants.iter().filter(counts).map(|grant| grant.uid.clone()).collect();
        book.room.granted = u32::try_from(book.granted.len()).unwrap_or(u32::MAX);
    }
    books
}

impl Book {
    /// Which of the budgets at `places` have no room for one more.
    fn lacks(&self, budget: &Budget<'_>, places: &[usize], grant: &Grant) -> Vec<Refusal> {
        let rules = places.iter().map(|place| &budget.set.rules[*place]);
        if !budget.is_current {
            let why =
                "the rule's ledger was last written by another controller: the pods are read anew first";
            return rules.map(|rule| Refusal::new(&rule.name, why)).collect();
        }
        if self.bytes + grant.bytes() > GRANTS_LIMIT {
            let why = "too many pods are let through at once; this one is next when they are";
            return rules.map(|rule| Refusal::new(&rule.name, why)).collect();
        }
        if self.granted.contains(&grant.uid) {
            return Vec::new();
        }
        let refusal = |rule: &super::Rule| match &rule.check {
            Check::Available(policy) => self.room.refuses(policy, &rule.name),
            _ => None,
        };
        rules.filter_map(|rule| refusal(rule).map(|why| Refusal::new(&rule.name, why))).collect()
    }

    fn give(&mut self, grant: Grant) {
        self.bytes += grant.bytes();
        if self.granted.insert(grant.uid.clone()) {
            self.room.granted += 1;
        }
        self.grants.push(grant);
    }

    fn close(self, me: &str, stored: &Ledger) -> Option<Ledger> {
        (self.grants != stored.grants()).then(|| Ledger::new(me, self.grants))
    }
}

impl Room {
    /// Pods that are available, and go on to be.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.selected.saturating_sub(self.unavailable).saturating_sub(self.granted)
    }

    /// Why one more pod may not go, if so. The words are the reference's.
    fn refuses(&self, policy: &AvailablePolicy, rule: &str) -> Option<String> {
        let all = self.selected;
        let (most, fewest) = (policy.most_unavailable(all), policy.fewest_available(all));
        let left =
            most.saturating_sub(self.missing).saturating_sub(self.unavailable.saturating_add(self.granted));
        if left == 0 {
            let out = all - self.available();
            let missing = match self.missing {
                0 => String::new(),
                missing => format!(", [missing replicas]={missing}"),
            };
            return Some(format!(
                "[{rule}] blocked by max unavailable policy: [max unavailable]={most}/{all}, [current unavailable]={out}/{all}{missing}"
            ));
        }
        if self.available() <= fewest {
            return Some(format!(
                "[{rule}] blocked by min available policy: [min available]={fewest}/{all}, [current available]={}/{all}",
                self.available()
            ));
        }
        None
    }
}
