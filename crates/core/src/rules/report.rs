//! The status of a rule object.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::asking::CheckStage;
use super::json_room::JsonRoom;
use super::judge::Refusal;
use super::settle::{Member, Settlement, Verdict};

/// The names of pods may take so many bytes as JSON.
const TARGETS_LIMIT: usize = 32 * 1024;
/// What is said to single pods may take so many bytes as JSON. With the names, the ledger and what webhooks keep there
/// the status stays under 256 KiB.
const DETAILS_LIMIT: usize = 96 * 1024;
/// The names and reasons of rules that are said to one pod may take so many bytes as JSON, in the status and in the pod's annotation. The
/// longest refusal there can be has half of that.
const DETAIL_LIMIT: usize = 8 * 1024;

// What is written of it stands in the resource's schema, too: without links.
/// What the rules say to a pod. Also the value of the pod's annotation `detail.podtransitionrule.kusionstack.io/<object>`, without
/// name and passed rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// The pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The stage that it is in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// Whether it has passed all rules of the stage.
    pub passed: bool,
    /// Rules that it has passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_rules: Vec<String>,
    /// Rules that it has not, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reject_info: Vec<Refusal>,
}

impl Detail {
    /// The value of the pod's annotation: what fits of it, the first refusals first.
    #[must_use]
    pub fn annotation(&self) -> String {
        let short = Detail { name: String::new(), passed_rules: Vec::new(), ..self.clone() };
        serde_json::to_string(&short.cut()).unwrap_or_default()
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

    /// The first refusals that fit, then the first rules that were passed.
    fn cut(mut self) -> Self {
        let mut room = JsonRoom(DETAIL_LIMIT);
        self.reject_info.truncate(self.reject_info.iter().take_while(|refusal| room.fits(refusal)).count());
        self.passed_rules.truncate(self.passed_rules.iter().take_while(|rule| room.fits(rule)).count());
        self
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

/// The reports on all rule sets, in step with them, of a decision about `members`. What they take grows with the pods that each selects.
#[must_use]
pub fn reports(members: &[Member<'_>], settlement: &Settlement) -> Vec<Report> {
    let mut found: Vec<(Vec<&Member<'_>>, Vec<&Verdict>)> = vec![Default::default(); settlement.rooms.len()];
    for member in members {
        for set in member.sets {
            found[*set].0.push(member);
        }
    }
    for verdict in &settlement.verdicts {
        found[verdict.set].1.push(verdict);
    }
    found.into_iter().map(|(selected, verdicts)| report(members, &selected, &verdicts)).collect()
}

/// The report on one of them, which selects `selected`, and said `verdicts`.
fn report(members: &[Member<'_>], selected: &[&Member<'_>], verdicts: &[&Verdict]) -> Report {
    let mut of_member: BTreeMap<usize, (i64, Detail)> = BTreeMap::new();
    for verdict in verdicts {
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
    // In the order that they stand in the report: those that wait first, then by the time that they ask since, then by name.
    let mut found: BTreeMap<(bool, i64, &str), Detail> = BTreeMap::new();
    for (member, (since, detail)) in of_member {
        found.insert((detail.passed, since, members[member].pod.name), detail);
    }
    let waiting = found.keys().filter(|(passed, ..)| !passed);
    let first: Vec<&str> = waiting.map(|(_, _, name)| *name).collect();
    let known: HashSet<&str> = first.iter().copied().collect();
    let names = selected.iter().map(|member| member.pod.name);
    let mut rest: Vec<&str> = names.filter(|name| !known.contains(name)).collect();
    rest.sort_unstable();
    let (mut targets, mut details) = (JsonRoom(TARGETS_LIMIT), JsonRoom(DETAILS_LIMIT));
    Report {
        target_count: u32::try_from(selected.len()).unwrap_or(u32::MAX),
        waiting_count: u32::try_from(first.len()).unwrap_or(u32::MAX),
        targets: first
            .iter()
            .chain(&rest)
            .take_while(|name| targets.fits(name))
            .map(|name| (*name).to_owned())
            .collect(),
        details: found.into_values().map(Detail::cut).take_while(|detail| details.fits(detail)).collect(),
    }
}
