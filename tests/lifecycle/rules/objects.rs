//! Objects of these tests, and the conditions that they wait for.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use podward_api::{PodTransitionRule, pod_transition_rule::PodTransitionRuleStatus};
use podward_core::{
    keys::{self, Stage},
    rules::CheckStage,
};
use podward_e2e::Fixture;
use podward_support::{Operator, WAIT, await_condition, pods, within};
use serde_json::{Value, json};

use crate::deletion::objects::LONG;

/// The number of concurrent requests of a test.
const MAX_CONCURRENT: usize = 32;

/// Returns the rule objects of the test's namespace.
pub(crate) fn rules_of(fixture: &Fixture) -> Api<PodTransitionRule> {
    Api::namespaced(fixture.client(), fixture.namespace())
}

/// Returns a rule object with these rules for all pods of its namespace.
pub(super) fn rule(name: &str, rules: Value) -> Value {
    rule_for(name, json!({}), rules)
}

/// Returns a rule object with these rules for the pods that `selector` matches.
pub(crate) fn rule_for(name: &str, selector: Value, rules: Value) -> Value {
    json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1",
        "kind": "PodTransitionRule",
        "metadata": {"name": name},
        "spec": {"selector": selector, "rules": rules},
    })
}

/// Makes a rule object.
pub(crate) async fn put(rules: &Api<PodTransitionRule>, rule: Value) -> Result<()> {
    let rule: PodTransitionRule = serde_json::from_value(rule).context("describe a rule")?;
    let made = rules.create(&PostParams::default(), &rule).await;
    made.map(drop).with_context(|| format!("make rule {}", rule.name_any()))
}

/// Sends a JSON merge patch of a rule object.
pub(super) async fn patch(fixture: &Fixture, name: &str, change: Value) -> Result<()> {
    let patched = rules_of(fixture).patch(name, &PatchParams::default(), &Patch::Merge(&change)).await;
    patched.map(drop).with_context(|| format!("patch rule {name} with {change}"))
}

/// Deletes a rule object.
pub(crate) async fn remove(fixture: &Fixture, name: &str) -> Result<()> {
    let deleted = rules_of(fixture).delete(name, &DeleteParams::default()).await;
    deleted.map(drop).with_context(|| format!("delete rule {name}"))
}

/// Returns a rule that limits the number of unavailable pods.
pub(super) fn at_most(name: &str, limit: Value) -> Value {
    json!({"name": name, "availablePolicy": {"maxUnavailableValue": limit}})
}

/// Returns a rule that requires the label `key` with the value `yes`.
pub(super) fn wants(name: &str, key: &str) -> Value {
    json!({"name": name, "labelCheck": {"requires": {"matchLabels": {key: "yes"}}}})
}

/// Returns names of pods.
pub(super) fn names(word: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{word}-{number:03}")).collect()
}

/// Creates pods that are opted in, with these additional labels, and waits until they are available.
pub(crate) async fn serving(fixture: &Fixture, names: &[String], labels: Value) -> Result<()> {
    let mut labels = labels;
    labels[keys::CONTROL_LABEL] = keys::CONTROL_VALUE.into();
    let (labels, nothing) = (&labels, &json!({}));
    let made: Vec<_> = names.iter().map(|name| fixture.create_with(name, labels, nothing)).collect();
    stream::iter(made).buffer_unordered(MAX_CONCURRENT).try_collect::<Vec<_>>().await?;
    let serve = |pods: &[&Pod]| {
        let are_there = pods.iter().filter(|pod| names.contains(&pod.name_any()));
        are_there.filter(|pod| pods::is_available(pod)).count() == names.len()
    };
    fixture.feed().until_pods_within(LONG, "all pods are in service", serve).await.map(drop)
}

/// Begins the operation on all of them at once.
pub(super) async fn begin_all(operator: &Operator, pods: &[String]) -> Result<()> {
    let begun: Vec<_> = pods.iter().map(|pod| operator.begin(pod)).collect();
    stream::iter(begun).buffer_unordered(MAX_CONCURRENT).try_collect::<Vec<_>>().await.map(drop)
}

/// Ends the operation on each pod as soon as it has its permission, and waits until all are available again.
pub(crate) async fn finish_all(fixture: &Fixture, operator: &Operator, pods: &[String]) -> Result<()> {
    let work = async |pod: &String| {
        let may = |found: &Pod| operator.has(found, Stage::Operate);
        fixture.feed().until_within(LONG, pod, "it may be worked on", may).await?;
        operator.finish(pod).await?;
        let is_over = |found: &Pod| {
            pods::is_available(found) && !Stage::OURS.iter().any(|stage| operator.has(found, *stage))
        };
        fixture.feed().until_within(LONG, pod, "its operation is over", is_over).await.map(drop)
    };
    futures::future::try_join_all(pods.iter().map(work)).await.map(drop)
}

/// Waits until this number of pods has the permission, and returns their names in order.
pub(super) async fn until_at_work(
    fixture: &Fixture,
    operator: &Operator,
    count: usize,
) -> Result<Vec<String>> {
    let may = |pod: &&Pod| operator.has(pod, Stage::Operate);
    let enough = |pods: &[&Pod]| pods.iter().filter(|pod| may(pod)).count() >= count;
    let what = format!("{count} pods may be worked on");
    let found = fixture.feed().until_pods_within(LONG, &what, enough).await?;
    let found: Vec<String> =
        found.iter().filter(|pod| may(&pod.as_ref())).map(|pod| pod.name_any()).collect();
    ensure!(found.len() == count, "{} may be worked on, more than {count}: {found:?}", found.len());
    Ok(found)
}

/// Returns the text of the pod's condition.
pub(crate) fn told(pod: &Pod) -> String {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = conditions.find(|condition| condition.type_ == keys::LIFECYCLE_CONDITION);
    found.and_then(|condition| condition.message.clone()).unwrap_or_default()
}

/// Waits until the pod's condition contains all of `texts`. The pod must not get its permission before.
pub(crate) async fn until_refused(
    fixture: &Fixture,
    operator: &Operator,
    pod: &str,
    texts: &[&str],
) -> Result<Arc<Pod>> {
    let passed = |found: &Pod| operator.has(found, Stage::Operate);
    until_reported(fixture, pod, CheckStage::PreCheck, texts, passed).await
}

/// Returns the same for the result of an operation.
pub(super) async fn until_held(
    fixture: &Fixture,
    operator: &Operator,
    pod: &str,
    texts: &[&str],
) -> Result<Arc<Pod>> {
    let passed = |found: &Pod| operator.has(found, Stage::PostChecked) || pods::is_available(found);
    until_reported(fixture, pod, CheckStage::PostCheck, texts, passed).await
}

async fn until_reported(
    fixture: &Fixture,
    pod: &str,
    stage: CheckStage,
    texts: &[&str],
    passed: impl Fn(&Pod) -> bool,
) -> Result<Arc<Pod>> {
    let says = |found: &Pod| texts.iter().all(|text| told(found).contains(text));
    let what = format!("its condition says {texts:?}");
    let found = fixture.feed().until(pod, &what, |found| passed(found) || says(found)).await?;
    ensure!(!passed(&found), "pod {pod} has passed {}: {}", stage.as_str(), pods::describe(&found));
    Ok(found)
}

/// Waits until `test` is true for the status of a rule object.
pub(super) async fn until_status(
    fixture: &Fixture,
    name: &str,
    what: &str,
    test: impl Fn(&PodTransitionRuleStatus) -> bool,
) -> Result<PodTransitionRuleStatus> {
    let is_so =
        |rule: Option<&PodTransitionRule>| rule.and_then(|rule| rule.status.as_ref()).is_some_and(&test);
    let rules = rules_of(fixture);
    let reached = async {
        let rule = await_condition(rules.clone(), name, is_so).await.context("watch the rule")?;
        rule.and_then(|rule| rule.status).context("a rule without a status")
    };
    match within(WAIT, || format!("rule {name} until {what}"), reached).await {
        Ok(status) => Ok(status),
        Err(error) => {
            let stands = rules.get_opt(name).await.ok().flatten().and_then(|rule| rule.status);
            Err(error.context(format!("its status is {stands:?}")))
        }
    }
}
