//! The status of a rule object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::asking::CheckStage;
use super::judge::Refusal;
use super::settle::{Member, Settlement};

/// The names of pods may take so many bytes as JSON.
const TARGETS_LIMIT: usize = 32 * 1024;
/// What is said to single pods may take so many bytes as JSON. With the names, the ledger and what webhooks keep there
/// the status stays under 256 KiB.
const DETAILS_LIMIT: usize = 96 * 1024;

/// What a rule set says to a pod. On the wire an entry of `status.details`; without `name` and `passedRules` also the value of the pod's
/// annotation [`RULE_DETAIL_PREFIX`](crate::keys::RULE_DETAIL_PREFIX)`<object>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// The pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// [`CheckStage::as_str`] of the check that it is in; of two, the first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// Whether it has passed all rules of the stage.
    pub passed: bool,
    /// The rules that it has passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_rules: Vec<String>,
    /// The rules that it hasn't.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reject_info: Vec<Refusal>,
}

impl Detail {
    /// The value of the pod's annotation.
    #[must_use]
    pub fn annotation(&self) -> String {
        let short = Detail { name: String::new(), passed_rules: Vec::new(), ..self.clone() };
        serde_json::to_string(&short).unwrap_or_default()
    }

    /// Adds what was said to one more asking of the stage.
    pub fn add(&mut self, passed: &[String], refusals: &[Refusal]) {
        self.passed &= refusals.is_empty();
        for refusal in refusals {
            if !self.reject_info.iter().any(|known| known.rule_name == refusal.rule_name) {
                self.reject_info.push(refusal.clone());
            }
        }
        for rule in passed {
            if !self.passed_rules.contains(rule) {
                self.passed_rules.push(rule.clone());
            }
        }
        let Detail { passed_rules, reject_info, .. } = self;
        passed_rules.retain(|rule| !reject_info.iter().any(|refusal| &refusal.rule_name == rule));
    }
}

/// What the status says of the pods of one rule set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Names of selected pods: first those that wait, the oldest first, then the others by name; as many as fit.
    pub targets: Vec<String>,
    /// How many pods are selected.
    pub target_count: u32,
    /// How many of them wait for a rule.
    pub waiting_count: u32,
    /// What is said to those that are in a check: first those that wait, the oldest first; as many as fit.
    pub details: Vec<Detail>,
}

/// The report on the rule set at the place `set`, of a decision about `members`.
#[must_use]
pub fn report(set: usize, members: &[Member<'_>], settlement: &Settlement) -> Report {
    // In the order that they stand in the report: those that wait first, then by the time that they ask since, then by name.
    let mut found: BTreeMap<(bool, i64, &str), Detail> = BTreeMap::new();
    let mut of_member: BTreeMap<usize, (i64, Detail)> = BTreeMap::new();
    for verdict in settlement.verdicts.iter().filter(|verdict| verdict.set == set) {
        let Member { pod, askings, .. } = &members[verdict.member];
        let asking = &askings[verdict.asking];
        let (since, detail) = of_member.entry(verdict.member).or_insert_with(|| {
            let (name, stage) = (pod.name.to_owned(), asking.stage.as_str().to_owned());
            (i64::MAX, Detail { name, stage, passed: true, ..Detail::default() })
        });
        *since = (*since).min(asking.since());
        if asking.stage == CheckStage::PreCheck || detail.stage == asking.stage.as_str() {
            detail.add(&verdict.passed, &verdict.refusals);
        }
    }
    for (member, (since, detail)) in of_member {
        found.insert((detail.passed, since, members[member].pod.name), detail);
    }
    let selected = || members.iter().filter(|member| member.sets.contains(&set));
    let waiting = found.iter().filter(|((passed, ..), _)| !passed);
    let first: Vec<&str> = waiting.map(|((_, _, name), _)| *name).collect();
    let mut rest: Vec<&str> = selected().map(|member| member.pod.name).collect();
    rest.sort_unstable();
    let known: std::collections::HashSet<&str> = first.iter().copied().collect();
    rest.retain(|name| !known.contains(name));
    Report {
        target_count: u32::try_from(selected().count()).unwrap_or(u32::MAX),
        waiting_count: u32::try_from(first.len()).unwrap_or(u32::MAX),
        // Names of pods need no escapes in JSON: two quotes and a comma are all that is added.
        targets: fitting(first.into_iter().chain(rest), TARGETS_LIMIT, |name| name.len() + 3)
            .map(ToOwned::to_owned)
            .collect(),
        details: fitting(found.into_values(), DETAILS_LIMIT, |detail| {
            serde_json::to_string(detail).map_or(usize::MAX, |text| text.len() + 1)
        })
        .collect(),
    }
}

/// The first of `items`, as long as they fit into `limit`.
fn fitting<T>(
    items: impl Iterator<Item = T>,
    limit: usize,
    bytes: impl Fn(&T) -> usize,
) -> impl Iterator<Item = T> {
    let mut left = limit;
    items.take_while(move |item| match left.checked_sub(bytes(item)) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    })
}
