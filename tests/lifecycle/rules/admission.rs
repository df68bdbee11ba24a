//! The validation of rules.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, Kubectl, Test};
use serde_json::{Value, json};

use super::objects::{at_most, rule, rule_for, rules_of, until_status, wants};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rules_that_are_wrong_are_refused", wrong_rules_are_refused),
        Test::node("rules_that_cannot_be_meant_are_warned_of", warnings),
        Test::node("rules_of_the_usual_form_are_taken", usual_form),
    ]
}

/// Rules as users write them for KusionStack: every kind, percentages as text, with and without stages.
const USUAL: &str = r#"
apiVersion: apps.kusionstack.io/v1alpha1
kind: PodTransitionRule
metadata:
  name: usual
  labels:
    app.kubernetes.io/part-of: shop
spec:
  selector:
    matchLabels:
      app: shop
    matchExpressions:
      - {key: tier, operator: In, values: [front, back]}
  rules:
    - name: few-at-a-time
      availablePolicy:
        maxUnavailableValue: 50%
        minAvailableValue: 1
    - name: marked
      disabled: false
      stage: PreCheck
      filter:
        labelSelector:
          matchLabels:
            tier: front
      labelCheck:
        requires:
          matchLabels:
            shop.example.com/ready: "true"
    - name: approved
      stage: PostCheck
      webhook:
        failurePolicy: Ignore
        clientConfig:
          url: http://127.0.0.1:1/check
          caBundle: Cg==
          poll:
            url: http://127.0.0.1:1/tasks
            rawQueryKey: task
            intervalSeconds: 5
            timeoutSeconds: 60
        parameters:
          - key: ip
            valueFrom:
              fieldRef:
                fieldPath: status.podIP
          - key: cluster
            value: blue
"#;

async fn apply(fixture: &Fixture, text: &str) -> Result<Kubectl> {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").context("make a file")?;
    std::fs::write(file.path(), text).context("write a file")?;
    let path = file.path().to_str().context("a path that is no text")?;
    fixture.kubectl(&["apply", "--filename", path]).await
}

/// Invalid rules, each with the wrong field, or the message of the definition if no single field is wrong.
async fn wrong_rules_are_refused(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = |client: Value| json!({"name": "asked", "webhook": {"clientConfig": client}});
    let url = "https://127.0.0.1:1/check";
    let function = json!({"maxUnavailablePolicy": {"expFunc": {"pow": "much"}}});
    let operator = json!({"matchExpressions": [{"key": "tier", "operator": "Likes", "values": ["front"]}]});
    let parameter = json!({"key": "ip", "valueFrom": {"fieldRef": {"fieldPath": "status.podIPs[0]"}}});
    let mut with_parameter = webhook(json!({"url": url}));
    with_parameter["webhook"]["parameters"] = json!([parameter]);
    let mut twice = wants("double", "key");
    twice["availablePolicy"] = json!({"maxUnavailableValue": 1});
    let mut filtered = wants("filtered", "key");
    filtered["filter"] = json!({"labelSelector": operator});
    let mut no_selector = rule("wrong", json!([at_most("one", 1.into())]));
    no_selector["spec"].as_object_mut().map(|spec| spec.remove("selector"));
    let cases = [
        (no_selector, "selector is required"),
        (rule_for("wrong", operator.clone(), json!([at_most("one", 1.into())])), "spec.selector"),
        (rule("wrong", json!([{"labelCheck": {"requires": {}}}])), "each rule must have a unique name"),
        (rule("wrong", json!([wants("same", "a"), wants("same", "b")])), "each rule must have a unique name"),
        (rule("wrong", json!([{"name": "empty"}])), "exactly one of availablePolicy, labelCheck and webhook"),
        (rule("wrong", json!([twice])), "exactly one of availablePolicy, labelCheck and webhook"),
        (
            rule("wrong", json!([{"name": "none", "availablePolicy": {}}])),
            "at least one of maxUnavailableValue",
        ),
        (
            rule("wrong", json!([at_most("some", "a few".into())])),
            "spec.rules[0].availablePolicy.maxUnavailableValue",
        ),
        (
            rule("wrong", json!([at_most("fine", 1.into()), at_most("less", (-1).into())])),
            "spec.rules[1].availablePolicy.maxUnavailableValue",
        ),
        (
            rule("wrong", json!([{"name": "root", "availablePolicy": function}])),
            "spec.rules[0].availablePolicy.maxUnavailablePolicy.expFunc.pow",
        ),
        (
            rule("wrong", json!([{"name": "likes", "labelCheck": {"requires": operator}}])),
            "spec.rules[0].labelCheck.requires",
        ),
        (rule("wrong", json!([filtered])), "spec.rules[0].filter.labelSelector"),
        (
            rule("wrong", json!([webhook(json!({"url": "ftp://127.0.0.1/check"}))])),
            "spec.rules[0].webhook.clientConfig.url",
        ),
        (
            rule("wrong", json!([webhook(json!({"url": "https://me@127.0.0.1/check"}))])),
            "spec.rules[0].webhook.clientConfig.url",
        ),
        (
            rule("wrong", json!([webhook(json!({"url": url, "caBundle": "no certificate"}))])),
            "spec.rules[0].webhook.clientConfig.caBundle",
        ),
        (
            rule("wrong", json!([webhook(json!({"url": url, "poll": {"url": "/tasks"}}))])),
            "spec.rules[0].webhook.clientConfig.poll.url",
        ),
        (
            rule("wrong", json!([webhook(json!({"url": url, "poll": {"url": url, "intervalSeconds": 0}}))])),
            "spec.rules[0].webhook.clientConfig.poll.intervalSeconds",
        ),
        (
            rule("wrong", json!([with_parameter])),
            "spec.rules[0].webhook.parameters[0].valueFrom.fieldRef.fieldPath",
        ),
    ];
    for (wrong, text) in cases {
        let answer = apply(&fixture, &wrong.to_string()).await?;
        ensure!(answer.code == Some(1), "{wrong} was not refused: {}", answer.said);
        ensure!(answer.said.contains(text), "{wrong} was refused without {text:?}: {}", answer.said);
    }
    ensure!(rules_of(&fixture).get_opt("wrong").await?.is_none(), "a wrong rule is stored");
    // A valid rule stays unchanged if an update is invalid.
    apply(&fixture, &rule("right", json!([at_most("one", 1.into())])).to_string()).await?.succeeded()?;
    let wrong = rule("right", json!([{"name": "root", "availablePolicy": function}]));
    let answer = apply(&fixture, &wrong.to_string()).await?;
    ensure!(answer.code == Some(1), "the change was not refused: {}", answer.said);
    let stays = rules_of(&fixture).get("right").await?;
    ensure!(stays.spec.rules.len() == 1 && stays.spec.rules[0].name == "one", "{:?}", stays.spec);
    Ok(())
}

/// They are accepted anyway.
async fn warnings(fixture: Arc<Fixture>) -> Result<()> {
    let client = json!({"url": "https://169.254.169.254/check"});
    let nowhere = json!({"name": "asked", "webhook": {"clientConfig": client}});
    let mut elsewhere = wants("elsewhere", "key");
    elsewhere["stage"] = "PreTrafficOff".into();
    let mut conditional = wants("conditional", "key");
    conditional["conditions"] = json!(["Whenever"]);
    let cases = [
        (rule("nowhere", json!([nowhere])), "does not call webhooks at 169.254.169.254"),
        (rule("elsewhere", json!([elsewhere])), "spec.rules[0].stage"),
        (rule("conditional", json!([conditional])), "spec.rules[0].conditions"),
        (rule("empty", json!([])), "spec.rules: is empty"),
    ];
    for (odd, text) in cases {
        let answer = apply(&fixture, &odd.to_string()).await?.succeeded()?;
        let mut warnings = answer.said.lines().filter(|line| line.starts_with("Warning:"));
        ensure!(
            warnings.any(|line| line.contains(text)),
            "{odd} was taken without {text:?}: {}",
            answer.said
        );
        let name = odd["metadata"]["name"].as_str().unwrap_or_default();
        ensure!(rules_of(&fixture).get_opt(name).await?.is_some(), "rule {name} is not stored");
    }
    Ok(())
}

/// Every field is stored as written, and the short name works.
async fn usual_form(fixture: Arc<Fixture>) -> Result<()> {
    apply(&fixture, USUAL).await?.succeeded()?;
    until_status(&fixture, "usual", "it is accepted", |status| {
        status.conditions.iter().any(|one| one.type_ == "Accepted" && one.status == "True")
    })
    .await?;
    let shown = fixture.kubectl(&["get", "ptr", "usual", "--output=json"]).await?.succeeded()?;
    let stored: Value = serde_json::from_str(&shown.said).context("understand what kubectl has shown")?;
    let mut written: Value = serde_saphyr::from_str(USUAL).context("understand the rules")?;
    // The API server may leave out default values.
    written["spec"]["rules"][1].as_object_mut().map(|rule| rule.remove("disabled"));
    let mut spec = stored["spec"].clone();
    spec["rules"][1].as_object_mut().map(|rule| rule.remove("disabled"));
    ensure!(spec == written["spec"], "written {}, stored {spec}", written["spec"]);
    let again = apply(&fixture, USUAL).await?.succeeded()?;
    ensure!(again.said.contains("unchanged"), "the second time it was something else: {}", again.said);
    let table = fixture.kubectl(&["get", "ptr"]).await?.succeeded()?;
    ensure!(table.said.contains("usual") && table.said.contains("WAITING"), "{}", table.said);
    Ok(())
}
