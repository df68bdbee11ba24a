//! What rules say to one pod, for its reconciliation.

use std::collections::BTreeMap;
use std::sync::Arc;

use podward_core::keys::RULE_DETAIL_PREFIX;
use podward_core::refusals::Refusals;
use podward_core::rules::{
    Answer, Answers, Asking, CheckStage, Detail, Judgement, Refusal, Rule, RuleSet, Subject, askings,
};
use podward_core::{CheckResult, Checks, LabelChanges, Objection, UnixNanos};

use super::state::{AnswerKey, Space};
use super::{Shared, fresh};
use crate::cached_pod::CachedPod;

/// The name in the key of an annotation may have so many characters.
const LONGEST_NAME: usize = 63;
/// What all rule objects together say on one pod may have so many bytes: its annotations may have 256 KiB in all.
const DETAILS_LIMIT: usize = 64 * 1024;

/// What rules say to a pod.
#[derive(Debug, Default)]
pub(crate) struct PodRules {
    askings: Vec<Asking>,
    /// Why it isn't known which rules there are, if so.
    unknown: Option<String>,
    /// By the places of askings: what each rule set says.
    said: Vec<BTreeMap<String, Sentence>>,
    renew: Vec<Asking>,
    /// What is on the pod of results that rules refuse.
    refused: Refusals,
}

#[derive(Debug, Default)]
struct Sentence {
    passed: Vec<String>,
    refusals: Vec<Refusal>,
    objections: Vec<Objection>,
}

impl PodRules {
    pub(super) fn askings(&self) -> &[Asking] {
        &self.askings
    }

    pub(super) fn are_known(&self) -> bool {
        self.unknown.is_none()
    }

    /// Who refuses `asking`: rule sets, and what their rules say; why nobody can tell, while it isn't known which rules there are.
    pub(super) fn refusals(&self, asking: &Asking) -> Result<Vec<(&str, &Refusal)>, &str> {
        if let Some(why) = &self.unknown {
            return Err(why);
        }
        let place = self.askings.iter().position(|known| known == asking);
        let said = place.and_then(|place| self.said.get(place)).into_iter().flatten();
        let of_set = |(set, sentence)| {
            let (set, Sentence { refusals, .. }): (&String, &Sentence) = (set, sentence);
            refusals.iter().map(move |refusal| (set.as_str(), refusal))
        };
        Ok(said.flat_map(of_set).collect())
    }

    /// Whether rules keep `asking` waiting.
    pub(crate) fn refuse(&self, asking: &Asking) -> bool {
        self.refusals(asking).map_or(true, |refusals| !refusals.is_empty())
    }

    fn answer(&self, stage: CheckStage, operation: &str) -> CheckResult {
        if let Some(why) = &self.unknown {
            return CheckResult::Wait(why.clone());
        }
        let is_it = |asking: &Asking| asking.stage == stage && asking.operation == operation;
        // What rules say is bound to the time that it asks since; so that has to be on the pod first.
        let Some(place) = self.askings.iter().position(is_it) else {
            return CheckResult::Wait("rules are asked next".to_owned());
        };
        let refused: Vec<String> = self.said[place]
            .iter()
            .flat_map(|(set, sentence)| {
                sentence
                    .refusals
                    .iter()
                    .map(move |refusal| format!("rule {set}/{}: {}", refusal.rule_name, refusal.reason))
            })
            .collect();
        if refused.is_empty() { CheckResult::Pass } else { CheckResult::Wait(refused.join("; ")) }
    }

    /// The operations that are to ask anew, as if they had begun to at `now`: what they were given is free again when they do. `changes`
    /// are those that are made anyway.
    pub(crate) fn renew(&self, changes: &mut LabelChanges, now: UnixNanos) {
        for asking in &self.renew {
            let label = asking.stage.label(&asking.operation);
            if !changes.remove.contains(&label) && !changes.set.contains_key(&label) {
                changes.set.insert(label, now.to_string());
            }
        }
    }

    /// The annotations that tell the pod what rules say to it, as far as they have to be changed; `None` for those that are to go. They
    /// are not worth a write of their own.
    pub(crate) fn details(&self, pod: &CachedPod) -> Vec<(String, Option<String>)> {
        let mut wanted: BTreeMap<String, String> = BTreeMap::new();
        let mut details: BTreeMap<&str, Detail> = BTreeMap::new();
        for (asking, said) in self.askings.iter().zip(&self.said) {
            for (set, sentence) in said {
                let detail = details.entry(set.as_str()).or_insert_with(|| Detail {
                    stage: asking.stage.as_str().to_owned(),
                    passed: true,
                    ..Detail::default()
                });
                detail.add(&sentence.passed, &sentence.refusals);
            }
        }
        let mut room = DETAILS_LIMIT;
        for (set, detail) in details.into_iter().filter(|(set, _)| set.len() <= LONGEST_NAME) {
            let (key, text) = (format!("{RULE_DETAIL_PREFIX}{set}"), detail.annotation());
            let Some(left) = room.checked_sub(key.len() + text.len()) else { break };
            room = left;
            wanted.insert(key, text);
        }
        let present: BTreeMap<&str, &str> = pod.annotations_below(RULE_DETAIL_PREFIX).collect();
        // What was said to the last operation stays until another one asks.
        let stale = present.keys().filter(|key| !self.askings.is_empty() && !wanted.contains_key(**key));
        let mut changes: Vec<(String, Option<String>)> = stale.map(|key| ((*key).to_owned(), None)).collect();
        let is_new = |(key, text): &(String, String)| present.get(key.as_str()) != Some(&text.as_str());
        changes.extend(wanted.into_iter().filter(is_new).map(|(key, text)| (key, Some(text))));
        changes
    }
}

impl Checks for PodRules {
    fn pre_check(&self, id: &str, _: &str) -> CheckResult {
        self.answer(CheckStage::PreCheck, id)
    }

    fn post_check(&self, id: &str, _: &str) -> CheckResult {
        self.answer(CheckStage::PostCheck, id)
    }

    fn objections(&self, id: &str, _: &str) -> Vec<Objection> {
        let is_it = |asking: &Asking| asking.stage == CheckStage::PostCheck && asking.operation == id;
        match self.askings.iter().position(is_it).filter(|_| self.unknown.is_none()) {
            Some(place) => {
                let said = self.said[place].values();
                said.flat_map(|sentence| &sentence.objections).cloned().collect()
            }
            None => self.refused.of_unheard_rules(id),
        }
    }
}

/// The answers of webhooks that are known.
pub(super) struct Heard<'a>(pub(super) &'a std::collections::HashMap<AnswerKey, Answer>);

impl Answers for Heard<'_> {
    fn answer(&self, set: &RuleSet, rule: &Rule, pod: &Subject<'_>, asking: &Asking) -> Option<Answer> {
        let key = (set.name.clone(), rule.name.clone(), pod.uid.to_owned(), asking.clone());
        self.0.get(&key).cloned()
    }
}

pub(super) fn of(shared: &Arc<Shared>, pod: &CachedPod) -> PodRules {
    let view = pod.view();
    let askings = if view.terminating { Vec::new() } else { askings(view.labels) };
    let unknown = fresh::are_known(shared, pod, &askings).err();
    let mut rules = PodRules { unknown, refused: Refusals::of(&view), ..PodRules::default() };
    if !askings.is_empty() {
        let state = shared.state.lock();
        let sets = state.index.selecting(&pod.key().namespace, view.labels);
        let space = state.spaces.get(&pod.key().namespace);
        for asking in &askings {
            let said =
                sets.iter().filter_map(|set| Some((set.name.clone(), sentence(space?, set, pod, asking)?)));
            rules.said.push(said.collect());
            if space.and_then(|space| space.said(pod.uid(), asking)).is_some_and(|said| said.renew) {
                rules.renew.push(asking.clone());
            }
        }
    }
    rules.askings = askings;
    rules
}

/// What `set` says to `asking`, by the grants that are stored.
fn sentence(space: &Space, set: &RuleSet, pod: &CachedPod, asking: &Asking) -> Option<Sentence> {
    let record = space.records.get(&set.name)?;
    let judgement = set.judge(&pod.subject(), asking, &Heard(&space.answers));
    let Judgement { passed, refusals, objections, budgets, .. } = judgement;
    let mut sentence = Sentence { passed, refusals, objections };
    let said = space.said(pod.uid(), asking).and_then(|said| said.refusals.get(&set.name));
    for place in budgets {
        let name = &set.rules[place].name;
        if record.ledger.has(pod.uid(), asking) {
            sentence.passed.push(name.clone());
            continue;
        }
        let known = said.into_iter().flatten().find(|refusal| &refusal.rule_name == name);
        let waits = || match &space.trouble {
            None => Refusal::new(name, "waits for its turn"),
            Some(trouble) => Refusal::new(name, format!("waits until budgets can be kept: {trouble}")),
        };
        sentence.refusals.push(known.cloned().unwrap_or_else(waits));
    }
    Some(sentence)
}
