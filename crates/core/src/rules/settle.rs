//! The decision about room in budgets, for all rule sets and pods of a namespace.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::evaluate::{COUNTS, RuleDecision, RulePod, RuleRefusal, WebhookAnswers};
use super::grants::{GRANTS_LIMIT, Grant, Grants};
use super::policy::AvailablePolicy;
use super::refusal_cause::RefusalCause;
use super::request::CheckRequest;
use super::rule_set::{RuleCheck, RuleSet};

/// A rule set with the data for its budgets.
#[derive(Clone, Copy, Debug)]
pub struct RuleBudget<'a> {
    /// The rule set.
    pub set: &'a RuleSet,
    /// The stored grants.
    pub stored_grants: &'a Grants,
    /// The number of missing pods: for each owner of a selected pod, also of one that is being deleted, its replicas
    /// less its pods, at least 0. Its pods that are not opted in count while they are Ready. And the selected pods
    /// without such an owner that are being deleted. None for an owner that ends, see [`RuleMember::ends_workload`].
    pub missing: u32,
    /// True if the pods were read after the last write of the grants, or this process wrote them. Otherwise nothing is
    /// granted or dropped.
    pub is_current: bool,
}

/// A pod of the namespace. Pods that are being deleted, are finished or have not opted in are excluded.
#[derive(Clone, Copy, Debug)]
pub struct RuleMember<'a> {
    /// The pod.
    pub pod: RulePod<'a>,
    /// The requests of the pod; see [`check_requests`](super::check_requests).
    pub check_requests: &'a [CheckRequest],
    /// The indexes of the rule sets that select the pod, in ascending order without duplicates.
    pub sets: &'a [usize],
    /// True if the deletion request of the pod means that its workload ends
    /// ([`Workload::ends_by_request`](crate::deletion::Workload::ends_by_request)). Such a pod does not count any more
    /// from the time when it may be deleted: it may have to wait for the other pods of its workload, which need its room.
    ///
    /// Only Podward may write the request: the API server (policy `podward-deletion-requests`) and the webhook refuse
    /// writes of others.
    pub ends_workload: bool,
}

/// The answer of all checks besides rules, such as hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherChecks {
    /// Unknown: nothing is granted, and existing grants stay.
    Unknown,
    /// No other check refuses.
    Agree,
    /// Another check refuses.
    Refuse,
}

/// The state of a rule set's budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetRoom {
    /// The number of selected pods that count, see [`RuleMember::ends_workload`].
    pub selected: u32,
    /// The number of unavailable pods.
    pub unavailable: u32,
    /// The number of pods that are still available and have a grant.
    pub granted: u32,
    /// [`RuleBudget::missing`].
    pub missing: u32,
}

/// The result of one rule set for one request of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleVerdict {
    /// The index of the pod in the list of members.
    pub member: usize,
    /// The index of the request in [`RuleMember::check_requests`].
    pub check_request: usize,
    /// The index of the rule set.
    pub set: usize,
    /// The rules that the pod has passed.
    pub passed: Vec<String>,
    /// The rules that the pod has not passed, with reasons.
    pub refusals: Vec<RuleRefusal>,
    /// The webhook rules to ask.
    pub ask: Vec<String>,
}

/// The result of a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSettlement {
    /// The new grants of each rule set; `None` when they do not change. A grant counts only after it is written.
    pub new_grants: Vec<Option<Grants>>,
    /// The state of each rule set's budgets after this decision.
    pub rooms: Vec<BudgetRoom>,
    /// The results of all requests, in the order of members.
    pub verdicts: Vec<RuleVerdict>,
    /// Requests (member, index of the request) with a grant in a rule set that are refused all the same. They must be
    /// renewed with another time, so that the room is free again. This happens when two processes decide, or a check
    /// refuses late.
    pub renew: Vec<(usize, usize)>,
}

/// Decides which of `members` get room in the budgets of `sets`, all of one namespace. `me` is the name of this
/// process, see [`Grants::holder`].
///
/// Deterministic. With the returned grants stored and the pods unchanged, it returns nothing to write.
///
/// # Guarantees
/// - No rule set grants more room than there is, counting unavailable, missing and granted pods.
/// - A request gets room in all rule sets in which it needs room, or in none, and only when no other check refuses.
/// - Of two requests the older gets room first, then by the name of the pod.
/// - No grant is dropped while its request is on the pod.
#[must_use]
pub fn settle(
    me: &str,
    sets: &[RuleBudget<'_>],
    members: &[RuleMember<'_>],
    answers: &dyn WebhookAnswers,
    others: &dyn Fn(&RulePod<'_>, &CheckRequest) -> OtherChecks,
) -> RuleSettlement {
    let mut books = open(sets, members);
    let mut verdicts = Vec::new();
    let mut claims = Vec::new();
    let mut renew = Vec::new();
    for (member, at) in members.iter().enumerate() {
        for (place, check_request) in at.check_requests.iter().enumerate() {
            let judged: Vec<(usize, RuleDecision)> = at
                .sets
                .iter()
                .map(|set| (*set, sets[*set].set.evaluate(&at.pod, check_request, answers)))
                .collect();
            let claim = RoomRequest { member, place, first: verdicts.len() };
            // A webhook that has not been asked (the controller is new) has not refused.
            let refused =
                |(_, judgement): &(usize, RuleDecision)| judgement.refusals.len() > judgement.ask.len();
            let is_refused = judged.iter().any(refused);
            let is_asked = judged.iter().any(|(_, judgement)| !judgement.ask.is_empty());
            let is_held = judged.iter().any(|(set, judgement)| {
                !judgement.budgets.is_empty() && sets[*set].stored_grants.has(at.pod.uid, check_request)
            });
            let others = others(&at.pod, check_request);
            let budgets: Vec<(usize, Vec<usize>)> =
                judged.iter().map(|(set, judgement)| (*set, judgement.budgets.clone())).collect();
            for (set, judgement) in judged {
                let RuleDecision { passed, refusals, ask, .. } = judgement;
                verdicts.push(RuleVerdict { member, check_request: place, set, passed, refusals, ask });
            }
            match () {
                () if is_refused || others == OtherChecks::Refuse => {
                    if is_held {
                        renew.push((member, place));
                    }
                    claims.push((claim, budgets, false));
                }
                () => claims.push((claim, budgets, others == OtherChecks::Agree && !is_asked)),
            }
        }
    }
    claims.sort_by_cached_key(|(claim, ..)| {
        let RuleMember { pod, check_requests, .. } = &members[claim.member];
        let check_request = &check_requests[claim.place];
        (check_request.since(), pod.name, pod.uid, check_request.clone())
    });
    for (claim, budgets, is_ready) in &claims {
        let RuleMember { pod, check_requests, .. } = &members[claim.member];
        let check_request = &check_requests[claim.place];
        let needs = budgets.iter().filter(|(set, places)| {
            !places.is_empty() && !sets[*set].stored_grants.has(pod.uid, check_request)
        });
        let needs: Vec<&(usize, Vec<usize>)> = needs.collect();
        let grant = Grant::new(pod.name, pod.uid, check_request);
        let lacks = |(set, places): &(usize, Vec<usize>)| books[*set].lacks(&sets[*set], places, &grant);
        let mut lacking: BTreeMap<usize, Vec<RuleRefusal>> =
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
                Some(_) => verdict.refusals.extend(names.map(|name| later(name))),
                None => verdict.passed.extend(names.cloned()),
            }
        }
    }
    renew.sort_unstable();
    renew.dedup();
    let rooms = books.iter().map(|book| book.room).collect();
    let new_grants =
        books.into_iter().zip(sets).map(|(book, budget)| book.close(me, budget.stored_grants)).collect();
    RuleSettlement { new_grants, rooms, verdicts, renew }
}

/// The reason when there is room that the request cannot use yet.
const LATER: &str = "there is room, which is granted when no other check refuses";

fn later(rule: &str) -> RuleRefusal {
    RuleRefusal::new(rule, LATER).because(RefusalCause::OtherCheck)
}

/// A request and the index of its first verdict. There is one verdict for each rule set that selects the pod, in order.
struct RoomRequest {
    member: usize,
    place: usize,
    first: usize,
}

/// The grants of one rule set during a decision.
struct OpenGrants {
    grants: Vec<Grant>,
    /// The UIDs of available pods with a grant.
    granted: HashSet<String>,
    bytes: usize,
    room: BudgetRoom,
}

fn open(sets: &[RuleBudget<'_>], members: &[RuleMember<'_>]) -> Vec<OpenGrants> {
    let by_uid: HashMap<&str, &RuleMember<'_>> =
        members.iter().map(|member| (member.pod.uid, member)).collect();
    let stands = |grant: &Grant| {
        by_uid.get(grant.uid.as_str()).is_some_and(|member| {
            member.check_requests.iter().any(|check_request| grant.is_for(member.pod.uid, check_request))
        })
    };
    let mut books: Vec<OpenGrants> = Vec::with_capacity(sets.len());
    for budget in sets {
        let kept = budget.stored_grants.grants().iter().filter(|grant| !budget.is_current || stands(grant));
        let grants: Vec<Grant> = kept.cloned().collect();
        let bytes = grants.iter().map(Grant::bytes).sum();
        let room = BudgetRoom { missing: budget.missing, ..BudgetRoom::default() };
        books.push(OpenGrants { grants, granted: HashSet::new(), bytes, room });
    }
    for member in members.iter().filter(|member| !(member.ends_workload && member.pod.may_be_deleted())) {
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

impl OpenGrants {
    /// Returns the budgets at `places` that have no room for one more pod.
    fn lacks(&self, budget: &RuleBudget<'_>, places: &[usize], grant: &Grant) -> Vec<RuleRefusal> {
        let rules = places.iter().map(|place| &budget.set.rules[*place]);
        if !budget.is_current {
            let why =
                "the rule's grants were last written by another controller: the pods are read again first";
            let refusal =
                |rule: &super::Rule| RuleRefusal::new(&rule.name, why).because(RefusalCause::NotCurrent);
            return rules.map(refusal).collect();
        }
        if self.bytes + grant.bytes() > GRANTS_LIMIT {
            let why = "too many pods are allowed at once; this pod continues after them";
            let refusal =
                |rule: &super::Rule| RuleRefusal::new(&rule.name, why).because(RefusalCause::TooManyGrants);
            return rules.map(refusal).collect();
        }
        if self.granted.contains(&grant.uid) {
            return Vec::new();
        }
        let refusal = |rule: &super::Rule| match &rule.check {
            RuleCheck::Available(policy) => self.room.refuses(policy, &rule.name),
            _ => None,
        };
        let refusal = |rule: &super::Rule| {
            let (cause, why) = refusal(rule)?;
            Some(RuleRefusal::new(&rule.name, why).because(cause))
        };
        rules.filter_map(refusal).collect()
    }

    fn give(&mut self, grant: Grant) {
        self.bytes += grant.bytes();
        if self.granted.insert(grant.uid.clone()) {
            self.room.granted += 1;
        }
        self.grants.push(grant);
    }

    fn close(self, me: &str, stored: &Grants) -> Option<Grants> {
        (self.grants != stored.grants()).then(|| Grants::new(me, self.grants))
    }
}

impl BudgetRoom {
    /// Returns the number of pods that are available and stay so.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.selected.saturating_sub(self.unavailable).saturating_sub(self.granted)
    }

    /// Returns the cause and the reason for which one more pod may not leave, with the text of the reference.
    fn refuses(&self, policy: &AvailablePolicy, rule: &str) -> Option<(RefusalCause, String)> {
        let all = self.selected;
        // Of the pods that there should be: the minimum does not shrink with pods that are being replaced.
        let wanted = all.saturating_add(self.missing);
        let (most, fewest) = (policy.most_unavailable(all), policy.fewest_available(wanted));
        let left =
            most.saturating_sub(self.missing).saturating_sub(self.unavailable.saturating_add(self.granted));
        // Without a maximum, missing pods take no room: the minimum counts those that are left.
        if left == 0 && !policy.max_unavailable.is_empty() {
            let out = all - self.available();
            let missing = match self.missing {
                0 => String::new(),
                missing => format!(", [missing replicas]={missing}"),
            };
            let reason = format!(
                "[{rule}] blocked by max unavailable policy: [max unavailable]={most}/{all}{COUNTS}unavailable]={out}/{all}{missing}"
            );
            return Some((RefusalCause::MaxUnavailable, reason));
        }
        if self.available() <= fewest {
            let reason = format!(
                "[{rule}] blocked by min available policy: [min available]={fewest}/{wanted}{COUNTS}available]={}/{wanted}",
                self.available()
            );
            return Some((RefusalCause::MinAvailable, reason));
        }
        None
    }
}
