//! The status of a rule object.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::evaluate::RuleRefusal;
use super::json_room::JsonRoom;
use super::refusal_cause::RefusalCause;
use super::request::CheckStage;
use super::settle::{RuleMember, RuleSettlement, RuleVerdict};

/// The size limit of the pod names, in bytes of JSON.
const TARGETS_LIMIT: usize = 32 * 1024;
/// The size limit of the details of pods, in bytes of JSON. With the names, the grants and the state of webhooks the
/// status stays under 256 KiB.
const DETAILS_LIMIT: usize = 96 * 1024;
/// The size limit of the rule names and reasons for one pod, in bytes of JSON, in the status and in the annotation. The
/// longest refusal has half of that.
const DETAIL_LIMIT: usize = 8 * 1024;

// The comments are also the descriptions in the CRD, so they have no links.
/// The result of the rules for a pod. Also the value of the annotation
/// `detail.podtransitionrule.kusionstack.io/<object>` of the pod, without name and passed rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleDetail {
    /// The name of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The stage of the check.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// True if the pod has passed all rules of the stage.
    pub passed: bool,
    /// The rules that the pod has passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_rules: Vec<String>,
    /// The rules that the pod has not passed, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reject_info: Vec<RuleRefusal>,
}

impl RuleDetail {
    /// Returns the value of the annotation: as many refusals as fit, in their order.
    #[must_use]
    pub fn annotation(&self) -> String {
        let short = RuleDetail { name: String::new(), passed_rules: Vec::new(), ..self.clone() };
        serde_json::to_string(&short.cut()).unwrap_or_default()
    }

    /// Adds the result of another request of the stage.
    pub fn add(&mut self, passed: &[String], refusals: &[RuleRefusal]) {
        self.passed &= refusals.is_empty();
        for refusal in refusals {
            if !self.reject_info.iter().any(|known| known.rule_name == refusal.rule_name) {
                // Without the cause, so that it equals the refusal that was read from the status.
                self.reject_info.push(refusal.clone().because(RefusalCause::default()));
            }
        }
        for rule in passed {
            if !self.passed_rules.contains(rule) {
                self.passed_rules.push(rule.clone());
            }
        }
        let RuleDetail { passed_rules, reject_info, .. } = self;
        passed_rules.retain(|rule| !reject_info.iter().any(|refusal| &refusal.rule_name == rule));
    }

    /// Keeps the first refusals that fit, then the first passed rules.
    fn cut(mut self) -> Self {
        let mut room = JsonRoom(DETAIL_LIMIT);
        self.reject_info.truncate(self.reject_info.iter().take_while(|refusal| room.fits(refusal)).count());
        self.passed_rules.truncate(self.passed_rules.iter().take_while(|rule| room.fits(rule)).count());
        self
    }
}

/// The status of a rule set's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleReport {
    /// The names of selected pods, as many as fit: waiting pods first, the oldest first, then the others by name.
    pub targets: Vec<String>,
    /// The number of selected pods.
    pub target_count: u32,
    /// The number of selected pods that wait for a rule.
    pub waiting_count: u32,
    /// The results of pods in a check, as many as fit: waiting pods first, the oldest first.
    pub details: Vec<RuleDetail>,
}

/// Returns the reports of all rule sets, in their order, about a decision on `members`. The cost grows with the number
/// of selected pods.
#[must_use]
pub fn rule_reports(members: &[RuleMember<'_>], settlement: &RuleSettlement) -> Vec<RuleReport> {
    let mut found: Vec<(Vec<&RuleMember<'_>>, Vec<&RuleVerdict>)> =
        vec![Default::default(); settlement.rooms.len()];
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

/// Returns the report of one rule set that selects `selected` and has `verdicts`.
fn report(members: &[RuleMember<'_>], selected: &[&RuleMember<'_>], verdicts: &[&RuleVerdict]) -> RuleReport {
    let mut of_member: BTreeMap<usize, (i64, RuleDetail)> = BTreeMap::new();
    for verdict in verdicts {
        let RuleMember { pod, check_requests, .. } = &members[verdict.member];
        let check_request = &check_requests[verdict.check_request];
        let (since, detail) = of_member.entry(verdict.member).or_insert_with(|| {
            let (name, stage) = (pod.name.to_owned(), check_request.stage.as_str().to_owned());
            (i64::MAX, RuleDetail { name, stage, passed: true, ..RuleDetail::default() })
        });
        *since = (*since).min(check_request.since());
        if check_request.stage == CheckStage::PreCheck || detail.stage == check_request.stage.as_str() {
            let refusals: Vec<RuleRefusal> =
                verdict.refusals.iter().cloned().map(RuleRefusal::without_counts).collect();
            detail.add(&verdict.passed, &refusals);
        }
    }
    // In the order of the report: waiting pods first, then by the time of the request, then by name.
    let mut found: BTreeMap<(bool, i64, &str), RuleDetail> = BTreeMap::new();
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
    RuleReport {
        target_count: u32::try_from(selected.len()).unwrap_or(u32::MAX),
        waiting_count: u32::try_from(first.len()).unwrap_or(u32::MAX),
        targets: first
            .iter()
            .chain(&rest)
            .take_while(|name| targets.fits(name))
            .map(|name| (*name).to_owned())
            .collect(),
        details: found.into_values().map(RuleDetail::cut).take_while(|detail| details.fits(detail)).collect(),
    }
}
