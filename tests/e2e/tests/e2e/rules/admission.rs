//! What is said to those who write rules.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use podward_e2e::{Kubectl, Scene, Test};
use serde_json::{Value, json};

use super::made::{at_most, rule, rule_for, rules_of, until_status, wants};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rules_that_are_wrong_are_refused", wrong_rules_are_refused),
        Test::node("rules_that_cannot_be_meant_are_warned_of", warnings),
        Test::node("rules_of_the_usual_form_are_taken", usual_form),
    ]
}

/// Rules as people write them for KusionStack: every kind, percentages as text, stages left out or said.
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

async fn apply(scene: &Scene, text: &str) -> Result<Kubectl> {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").context("make a file")?;
    std::fs::write(file.path(), text).context("write a file")?;
    let path = file.path().to_str().context("a path that is no text")?;
    scene.kubectl(&["apply", "--filename", path]).await
}

/// Each with the field that is wrong, or the words of the definition where no single field is.
async fn wrong_rules_are_refused(scene: Arc<Scene>) -> Result<()> {
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
        (rule("wrong", json!([{"labelCheck": {"requires": {}}}])), "each needs a name"),
        (rule("wrong", json!([wants("same", "a"), wants("same", "b")])), "no two the same"),
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
        let answer = apply(&scene, &wrong.to_string()).await?;
        ensure!(answer.code == Some(1), "{wrong} was not refused: {}", answer.said);
        ensure!(answer.said.contains(text), "{wrong} was refused without {text:?}: {}", answer.said);
    }
    ensure!(rules_of(&scene).get_opt("wrong").await?.is_none(), "a wrong rule is stored");
    // A right one that is made wrong stays as it was.
    apply(&scene, &rule("right", json!([at_most("one", 1.into())])).to_string()).await?.succeeded()?;
    let wrong = rule("right", json!([{"name": "root", "availablePolicy": function}]));
    let answer = apply(&scene, &wrong.to_string()).await?;
    ensure!(answer.code == Some(1), "the change was not refused: {}", answer.said);
    let stays = rules_of(&scene).get("right").await?;
    ensure!(stays.spec.rules.len() == 1 && stays.spec.rules[0].name == "one", "{:?}", stays.spec);
    Ok(())
}

/// They are taken all the same.
async fn warnings(scene: Arc<Scene>) -> Result<()> {
    let client = json!({"url": "https://127.0.0.1:1/check"});
    let nowhere = json!({"name": "asked", "webhook": {"clientConfig": client}});
    let mut elsewhere = wants("elsewhere", "key");
    elsewhere["stage"] = "PreTrafficOff".into();
    let mut conditional = wants("conditional", "key");
    conditional["conditions"] = json!(["Whenever"]);
    let cases = [
        (rule("nowhere", json!([nowhere])), "127.0.0.1:1 can't be reached"),
        (rule("elsewhere", json!([elsewhere])), "spec.rules[0].stage"),
        (rule("conditional", json!([conditional])), "spec.rules[0].conditions"),
        (rule("empty", json!([])), "spec.rules: there is none"),
    ];
    for (odd, text) in cases {
        let answer = apply(&scene, &odd.to_string()).await?.succeeded()?;
        let mut warnings = answer.said.lines().filter(|line| line.starts_with("Warning:"));
        ensure!(
            warnings.any(|line| line.contains(text)),
            "{odd} was taken without {text:?}: {}",
            answer.said
        );
        let name = odd["metadata"]["name"].as_str().unwrap_or_default();
        ensure!(rules_of(&scene).get_opt(name).await?.is_some(), "rule {name} is not stored");
    }
    Ok(())
}

/// Every field is stored as it was written, and it is shown by its short name.
async fn usual_form(scene: Arc<Scene>) -> Result<()> {
    apply(&scene, USUAL).await?.succeeded()?;
    until_status(&scene, "usual", "it is accepted", |status| {
        status.conditions.iter().any(|one| one.type_ == "Accepted" && one.status == "True")
    })
    .await?;
    let shown = scene.kubectl(&["get", "ptr", "usual", "--output=json"]).await?.succeeded()?;
    let stored: Value = serde_json::from_str(&shown.said).context("understand what kubectl has shown")?;
    let mut written: Value = serde_saphyr::from_str(USUAL).context("understand the rules")?;
    // What has its usual value is left out or not, as the API server likes.
    written["spec"]["rules"][1].as_object_mut().map(|rule| rule.remove("disabled"));
    let mut spec = stored["spec"].clone();
    spec["rules"][1].as_object_mut().map(|rule| rule.remove("disabled"));
    ensure!(spec == written["spec"], "written {}, stored {spec}", written["spec"]);
    let again = apply(&scene, USUAL).await?.succeeded()?;
    ensure!(again.said.contains("unchanged"), "the second time it was something else: {}", again.said);
    let table = scene.kubectl(&["get", "ptr"]).await?.succeeded()?;
    ensure!(table.said.contains("usual") && table.said.contains("WAITING"), "{}", table.said);
    Ok(())
}
