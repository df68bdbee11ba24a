//! The results of the rules' checks of one pod, for its reconciliation.

use std::collections::BTreeMap;

use podward_core::keys::RULE_DETAIL_PREFIX;
use podward_core::refusals::ResultRefusals;
use podward_core::rules::{
    CheckRequest, CheckStage, Rule, RuleDecision, RuleDetail, RulePod, RuleRefusal, RuleSet, SkippedRules,
    WebhookAnswer, WebhookAnswers,
};
use podward_core::{CheckResult, Checks, LabelChanges, Objection, UnixNanos};
use podward_kube_util::CachedPod;

use super::namespace_rules::{KnownAnswers, NamespaceRules};
use super::request_report::not_decided;
use super::rule_cache::RuleCache;

/// The longest name in the key of an annotation, in characters.
const MAX_NAME: usize = 63;
/// The largest size of all detail annotations of a pod, in bytes. All annotations of a pod may have 256 KiB.
const DETAILS_LIMIT: usize = 64 * 1024;

/// The results of the rules' checks of a pod.
#[derive(Debug, Default)]
pub struct PodRules {
    /// Sorted.
    requests: Vec<CheckRequest>,
    /// Why the cache may lack a rule; `None` if all rules are known.
    unknown: Option<String>,
    /// In the order of `requests`: the results by rule set.
    results: Vec<BTreeMap<String, RuleSetResult>>,
    /// The requests to make again.
    renew: Vec<CheckRequest>,
    /// The refused results that are stored on the pod.
    refused: ResultRefusals,
    /// Why the rules that the pod skips are checked all the same; `None` if they are not.
    skips_ignored: Option<String>,
}

/// The result of one rule set for one check request.
#[derive(Debug, Default)]
struct RuleSetResult {
    passed: Vec<String>,
    refusals: Vec<RuleRefusal>,
    objections: Vec<Objection>,
}

impl PodRules {
    /// Returns the results for `requests` of `pod`, which skips the rules `skipped`, with the grants that are stored.
    /// `unknown` is the reason why `cache` may lack a rule.
    pub(crate) fn of(
        cache: &RuleCache,
        pod: &CachedPod,
        skipped: &SkippedRules,
        requests: Vec<CheckRequest>,
        unknown: Option<String>,
    ) -> Self {
        let view = pod.view();
        let mut found = PodRules { unknown, refused: ResultRefusals::of(&view), ..PodRules::default() };
        if !requests.is_empty() {
            let sets = cache.index.selecting(pod.namespace(), view.labels);
            let rules = cache.namespaces.get(pod.namespace());
            found.skips_ignored = skipped.ignored_because();
            let subject = pod.subject(skipped);
            let finished = pod.is_terminal();
            for request in &requests {
                let results = sets.iter().filter_map(|set| {
                    Some((set.name.clone(), result_of(rules?, set, &subject, request, finished)?))
                });
                found.results.push(results.collect());
                let report = rules.and_then(|rules| rules.report(pod.uid(), request));
                if report.is_some_and(|report| report.renew) {
                    found.renew.push(request.clone());
                }
            }
        }
        found.requests = requests;
        found
    }

    pub(crate) fn requests(&self) -> &[CheckRequest] {
        &self.requests
    }

    /// True if all rules are known.
    pub(crate) fn are_known(&self) -> bool {
        self.unknown.is_none()
    }

    /// Returns the names of the rule sets that refuse `request`, each with a refusal.
    ///
    /// # Errors
    /// When not all rules are known; the text is the reason.
    pub(crate) fn refusals(&self, request: &CheckRequest) -> Result<Vec<(&str, &RuleRefusal)>, &str> {
        if let Some(why) = &self.unknown {
            return Err(why);
        }
        let place = self.requests.binary_search(request).ok();
        let results = place.and_then(|place| self.results.get(place)).into_iter().flatten();
        let of_set = |(set, result)| {
            let (set, RuleSetResult { refusals, .. }): (&String, &RuleSetResult) = (set, result);
            refusals.iter().map(move |refusal| (set.as_str(), refusal))
        };
        Ok(results.flat_map(of_set).collect())
    }

    /// True if a rule refuses `request`, or not all rules are known.
    pub fn refuse(&self, request: &CheckRequest) -> bool {
        self.refusals(request).map_or(true, |refusals| !refusals.is_empty())
    }

    fn result(&self, stage: CheckStage, operation: &str) -> CheckResult {
        if let Some(why) = &self.unknown {
            return CheckResult::Wait(why.clone());
        }
        // A result belongs to the time of a request, so the request has to be stored on the pod first.
        let Some(place) = self.place(stage, operation) else {
            return CheckResult::Wait("rules are asked next".to_owned());
        };
        let mut refused: Vec<String> = self.results[place]
            .iter()
            .flat_map(|(set, result)| {
                let refusals = result.refusals.iter();
                refusals.map(move |refusal| format!("rule {set}/{}: {}", refusal.rule_name, refusal.reason))
            })
            .collect();
        if refused.is_empty() {
            return CheckResult::Pass;
        }
        refused.extend(self.skips_ignored.clone());
        CheckResult::Wait(refused.join("; "))
    }

    /// Returns the index of the request of `operation` in `stage`.
    fn place(&self, stage: CheckStage, operation: &str) -> Option<usize> {
        let key =
            |request: &CheckRequest| (request.stage, request.operation.as_str()).cmp(&(stage, operation));
        self.requests.binary_search_by(key).ok()
    }

    /// Adds to `changes` the requests to make again at `now`. That frees the grants of the earlier requests.
    pub fn renew(&self, changes: &mut LabelChanges, now: UnixNanos) {
        for request in &self.renew {
            let label = request.stage.label(&request.operation);
            if !changes.remove.contains(&label) && !changes.set.contains_key(&label) {
                changes.set.insert(label, request.asked_again_at(now));
            }
        }
    }

    /// Returns the changes of the annotations that show the results on the pod; `None` for annotations to remove. Apply
    /// them with other changes: they are not worth a write of their own.
    pub fn details(&self, pod: &CachedPod) -> Vec<(String, Option<String>)> {
        let mut wanted: BTreeMap<String, String> = BTreeMap::new();
        let mut details: BTreeMap<&str, RuleDetail> = BTreeMap::new();
        for (request, results) in self.requests.iter().zip(&self.results) {
            for (set, result) in results {
                let detail = details.entry(set.as_str()).or_insert_with(|| RuleDetail {
                    stage: request.stage.as_str().to_owned(),
                    passed: true,
                    ..RuleDetail::default()
                });
                detail.add(&result.passed, &result.refusals);
            }
        }
        let mut left = DETAILS_LIMIT;
        for (set, detail) in details.into_iter().filter(|(set, _)| set.len() <= MAX_NAME) {
            let (key, text) = (format!("{RULE_DETAIL_PREFIX}{set}"), detail.annotation());
            let Some(rest) = left.checked_sub(key.len() + text.len()) else { break };
            left = rest;
            wanted.insert(key, text);
        }
        let present: BTreeMap<&str, &str> = pod.annotations_below(RULE_DETAIL_PREFIX).collect();
        // The details of the last operation stay until the next check request.
        let stale = present.keys().filter(|key| !self.requests.is_empty() && !wanted.contains_key(**key));
        let mut changes: Vec<(String, Option<String>)> = stale.map(|key| ((*key).to_owned(), None)).collect();
        let is_new = |(key, text): &(String, String)| present.get(key.as_str()) != Some(&text.as_str());
        changes.extend(wanted.into_iter().filter(is_new).map(|(key, text)| (key, Some(text))));
        changes
    }
}

impl Checks for PodRules {
    fn pre_check(&self, id: &str, _: &str) -> CheckResult {
        self.result(CheckStage::PreCheck, id)
    }

    fn post_check(&self, id: &str, _: &str) -> CheckResult {
        self.result(CheckStage::PostCheck, id)
    }

    fn objections(&self, id: &str, _: &str) -> Vec<Objection> {
        match self.place(CheckStage::PostCheck, id).filter(|_| self.unknown.is_none()) {
            Some(place) => {
                let results = self.results[place].values();
                results.flat_map(|result| &result.objections).cloned().collect()
            }
            None => self.refused.of_unknown_rules(id),
        }
    }
}

/// Webhooks are not asked about a pod that has finished, and agree.
struct NotAsked;

impl WebhookAnswers for NotAsked {
    fn answer(&self, _: &RuleSet, _: &Rule, _: &RulePod<'_>, _: &CheckRequest) -> Option<WebhookAnswer> {
        Some(WebhookAnswer::Approved)
    }
}

/// Returns the result of `set` for `request` of a pod that has `finished` or not, with the grants that are stored;
/// `None` if the rule set is not in the cache.
fn result_of(
    rules: &NamespaceRules,
    set: &RuleSet,
    pod: &RulePod<'_>,
    request: &CheckRequest,
    finished: bool,
) -> Option<RuleSetResult> {
    let record = rules.records.get(&set.name)?;
    let known = KnownAnswers(&rules.answers);
    let answers: &dyn WebhookAnswers = if finished { &NotAsked } else { &known };
    let decision = set.evaluate(pod, request, answers);
    let RuleDecision { passed, refusals, objections, budgets, .. } = decision;
    let mut result = RuleSetResult { passed, refusals, objections };
    let last = rules.report(pod.uid, request).and_then(|report| report.refusals.get(&set.name));
    // While a rule set can't be decided about, nothing is written, and a failed write may be long ago.
    let error = rules.errors.get(&set.name).map(String::as_str).or(rules.unstored.error(&set.name));
    for place in budgets {
        let name = &set.rules[place].name;
        if record.grants.has(pod.uid, request) {
            result.passed.push(name.clone());
            continue;
        }
        let known = last.into_iter().flatten().find(|refusal| &refusal.rule_name == name);
        result.refusals.push(match error {
            Some(error) => RuleRefusal::new(name, format!("waits until budgets can be kept: {error}")),
            None => known.cloned().unwrap_or_else(|| not_decided(name)),
        });
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_made_again_waits_no_longer() {
        let request = CheckRequest {
            stage: CheckStage::PreCheck,
            operation: "a".to_owned(),
            asked_at: "100".to_owned(),
        };
        let rules = PodRules { renew: vec![request], ..PodRules::default() };
        let mut changes = LabelChanges::default();
        rules.renew(&mut changes, UnixNanos(1_000_000_000));
        assert_eq!(changes.set, BTreeMap::from([(CheckStage::PreCheck.label("a"), "101".to_owned())]));
    }
}
