//! Rules of KusionStack are read unchanged. Invalid rules are rejected with the field.
#![allow(missing_docs, clippy::unwrap_used)]

use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::{
    FieldPath, Parameter, RuleCheckSpec, RuleFinding, RuleFindings, RuleStage, WebhookFailurePolicy,
    WebhookUrl, ca_certificates,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A `PodTransitionRule` with all fields of KusionStack's types (kube-api, podtransitionrule_types.go).
const COMPLETE: &str = r#"
apiVersion: apps.kusionstack.io/v1alpha1
kind: PodTransitionRule
metadata: {name: sample, namespace: default}
spec:
  selector: {matchLabels: {app: foo}}
  rules:
  - name: half
    availablePolicy: {maxUnavailableValue: 50%, minAvailableValue: 1}
  - name: function
    availablePolicy:
      maxUnavailableValue: 3
      maxUnavailablePolicy: {expFunc: {coeff: "0.5", pow: "0.8"}}
      minAvailablePolicy: {}
  - name: ready
    stage: PreCheck
    disabled: true
    conditions: [DeletePod]
    filter: {labelSelector: {matchExpressions: [{key: tier, operator: In, values: [web]}]}}
    labelCheck: {requires: {matchLabels: {app.custom/ready: "true"}}}
  - name: outside
    stage: PostCheck
    webhook:
      clientConfig:
        url: https://checks.example/first
        caBundle: Cg==
        poll: {url: "https://checks.example/poll?kind=a", rawQueryKey: trace, caBundle: "", intervalSeconds: 3, timeoutSeconds: 60}
      failurePolicy: Fail
      parameters:
      - {key: podIP, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}}
      - {key: context, valueFrom: {type: pod, fieldRef: {fieldPath: "metadata.annotations['test.io/context']"}}}
      - {key: literal, value: x}
status:
  updateTime: "2026-01-01T10:00:00Z"
  observedGeneration: 3
  targets: [a]
  ruleStates:
  - name: outside
    webhookStatus:
      taskStates: [{taskId: t, processing: [a], approved: [b], beginTime: "2026-01-01T10:00:00Z", lastTime: "2026-01-01T10:00:05Z", message: m}]
      history: [{taskId: s}]
  details: [{name: a, stage: PostCheck, passed: false, passedRules: [half], rejectInfo: [{ruleName: outside, reason: r}]}]
"#;

fn complete() -> Value {
    serde_saphyr::from_str(COMPLETE).unwrap()
}

fn checked(document: Value) -> RuleFindings {
    serde_json::from_value::<PodTransitionRule>(document).unwrap().check()
}

/// Returns the findings for a valid rule after a change.
fn found(rule: Value) -> RuleFindings {
    let mut document =
        json!({"metadata": {"name": "a"}, "spec": {"selector": {}, "rules": [{"name": "one"}]}});
    json_patch::merge(&mut document["spec"]["rules"][0], &rule);
    checked(document)
}

fn texts(findings: &[RuleFinding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

fn webhook(change: Value) -> Value {
    let mut rule = json!({"webhook": {"clientConfig": {"url": "https://a.example/x"}}});
    json_patch::merge(&mut rule["webhook"], &change);
    rule
}

#[test]
fn rules_of_kusionstack_are_read_and_written_unchanged() {
    let document = complete();
    let rule: PodTransitionRule = serde_json::from_value(document.clone()).unwrap();
    let mut written = serde_json::to_value(&rule).unwrap();
    let first_default =
        written["spec"]["rules"][3]["webhook"]["clientConfig"]["poll"].as_object_mut().unwrap();
    // The only difference: the empty field is left out.
    assert_eq!(first_default.insert("caBundle".to_owned(), json!("")), None);
    assert_eq!(json_patch::diff(&document, &written).0, [], "{written:#}");
    let findings = rule.check();
    assert_eq!(findings.errors, []);
    let warned: Vec<_> = findings.warnings.iter().map(|finding| finding.field.as_str()).collect();
    assert_eq!(warned, ["spec.rules[2].conditions"]);
}

#[test]
fn defaults_and_unknown_failure_policies_are_those_of_kusionstack() {
    let rule = |policy: Value| {
        let document = json!({"metadata": {"name": "a"}, "spec": {"selector": {}, "rules": [
            {"name": "r", "manual": {}, "webhook": {"clientConfig": {"url": "http://a", "poll": {"url": "http://b"}}, "failurePolicy": policy}},
        ]}});
        serde_json::from_value::<PodTransitionRule>(document).unwrap().spec.rules.remove(0)
    };
    let without = json!({"clientConfig": {"url": "http://a", "poll": {"url": "http://b"}}});
    let without: podward_api::pod_transition_rule::TransitionRuleWebhook =
        serde_json::from_value(without).unwrap();
    let poll = without.client_config.poll.unwrap();
    assert_eq!(
        (poll.interval_seconds, poll.timeout_seconds, without.failure_policy),
        (5, 60, WebhookFailurePolicy::Ignore)
    );
    for (word, meant) in [
        ("Ignore", WebhookFailurePolicy::Ignore),
        ("Fail", WebhookFailurePolicy::Fail),
        ("other", WebhookFailurePolicy::Fail),
    ] {
        assert_eq!(rule(json!(word)).webhook.unwrap().failure_policy, meant);
    }
    assert_eq!(rule(json!("Fail")).parsed_stage(), Some(RuleStage::PreCheck));
    assert!(matches!(rule(json!("Fail")).parsed_check(), Some(RuleCheckSpec::Webhook(_))));
}

/// The annotation determines whether operators are told about refused results.
#[test]
fn the_annotation_about_results_is_validated() {
    use podward_core::PostCheckRejection;

    const FIELD: &str = "metadata.annotations[podward.io/post-check-rejection]";
    let with = |text: &str, rule: Value| -> PodTransitionRule {
        let mut document = json!({
            "metadata": {"name": "a", "annotations": {"podward.io/post-check-rejection": text}},
            "spec": {"selector": {}, "rules": [{"name": "one", "stage": "PostCheck"}]},
        });
        json_patch::merge(&mut document["spec"]["rules"][0], &rule);
        serde_json::from_value(document).unwrap()
    };
    let labels = || json!({"labelCheck": {"requires": {"matchLabels": {"good": "yes"}}}});
    for (text, policy) in [("Hold", PostCheckRejection::Hold), ("Rollback", PostCheckRejection::Rollback)] {
        let rule = with(text, labels());
        assert_eq!(rule.check(), RuleFindings::default(), "{text}");
        assert_eq!(rule.to_rule_set().post_check_rejection, policy);
    }
    for text in ["rollback", "", "Proceed"] {
        let rule = with(text, labels());
        let found = texts(&rule.check().errors);
        let problem = format!("{FIELD}: {text:?} must be Hold (the default) or Rollback");
        assert_eq!(found, [problem], "{text}");
        assert_eq!(rule.to_rule_set().post_check_rejection, PostCheckRejection::Hold);
    }
    let mut early = labels();
    early["stage"] = "PreCheck".into();
    let found = with("Rollback", early).check();
    assert_eq!((found.errors, found.warnings[0].field.as_str()), (Vec::new(), FIELD));
    let with_policy =
        |policy: &str| with("Rollback", webhook(json!({"failurePolicy": policy}))).check().errors;
    assert_eq!(with_policy("Fail"), []);
    assert_eq!(with_policy("Ignore")[0].field, "spec.rules[0].webhook.failurePolicy");
    // The rule blocks even if admission was down when it was written.
    let asked = |policy: &str| {
        let rules = with("Rollback", webhook(json!({"failurePolicy": policy}))).to_rule_set().rules;
        rules.into_iter().next().unwrap().check
    };
    assert_eq!(asked("Fail"), podward_core::rules::RuleCheck::Webhook);
    assert!(
        matches!(asked("Ignore"), podward_core::rules::RuleCheck::Unreadable(why) if why.contains("must be Fail"))
    );
    let off = json!({"disabled": true, "webhook": {"clientConfig": {"url": "https://a.example/x"}}});
    assert_eq!(with("Rollback", off).check().errors, []);
}

#[test]
fn invalid_rules_are_rejected_with_the_field() {
    let contradiction = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "a", "operator": "DoesNotExist"}]});
    let available = |policy: Value| json!({"availablePolicy": policy});
    for (rule, words) in [
        (json!({}), "spec.rules[0]: exactly one of availablePolicy"),
        (
            webhook(json!({"clientConfig": {"url": ""}})),
            "spec.rules[0].webhook.clientConfig.url: is required",
        ),
        (
            json!({"labelCheck": {"requires": {}}, "availablePolicy": {"maxUnavailableValue": 1}}),
            "spec.rules[0]: exactly one",
        ),
        (json!({"name": "", "labelCheck": {"requires": {}}}), "spec.rules[0].name: is required"),
        (
            json!({"name": "a".repeat(254), "labelCheck": {"requires": {}}}),
            "spec.rules[0].name: longer than 253",
        ),
        (
            json!({"labelCheck": {"requires": contradiction}}),
            "spec.rules[0].labelCheck.requires: nothing can match",
        ),
        (
            json!({"labelCheck": {"requires": {}}, "filter": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "in"}]}}}),
            "spec.rules[0].filter.labelSelector: operator \"in\"",
        ),
        (available(json!({})), "spec.rules[0].availablePolicy: at least one"),
        (available(json!({"maxUnavailableValue": -1})), "maxUnavailableValue: -1 must be"),
        (available(json!({"maxUnavailableValue": "5"})), "maxUnavailableValue: \"5\" must be"),
        (available(json!({"minAvailableValue": "101%"})), "minAvailableValue: \"101%\" must be"),
        (available(json!({"minAvailableValue": "+1%"})), "must be"),
        (
            available(json!({"maxUnavailablePolicy": {"expFunc": {"coeff": "many"}}})),
            "maxUnavailablePolicy.expFunc.coeff: \"many\"",
        ),
        (
            available(json!({"minAvailablePolicy": {"expFunc": {"pow": "inf"}}})),
            "minAvailablePolicy.expFunc.pow: \"inf\"",
        ),
        (webhook(json!({"clientConfig": {"url": "ftp://a"}})), "must begin with http:// or https://"),
        (webhook(json!({"clientConfig": {"url": "/path"}})), "must begin with http:// or https://"),
        (webhook(json!({"clientConfig": {"url": "https://me:word@a"}})), "contains a user name"),
        (webhook(json!({"clientConfig": {"url": "https://a:0"}})), "1 to 65535"),
        (webhook(json!({"clientConfig": {"url": "https://a:99999"}})), "webhook.clientConfig.url"),
        (webhook(json!({"clientConfig": {"url": "https://a b"}})), "is not a URL"),
        (
            webhook(json!({"clientConfig": {"caBundle": "???"}})),
            "webhook.clientConfig.caBundle: neither base64 nor PEM",
        ),
        (webhook(json!({"clientConfig": {"caBundle": "cnViYmlzaA=="}})), "caBundle: contains no certificate"),
        (webhook(json!({"clientConfig": {"poll": {"url": ""}}})), "clientConfig.poll.url: is required"),
        (
            webhook(json!({"clientConfig": {"poll": {"url": "http://a", "caBundle": "x"}}})),
            "clientConfig.poll.caBundle",
        ),
        (
            webhook(json!({"clientConfig": {"poll": {"url": "http://a", "intervalSeconds": 0}}})),
            "poll.intervalSeconds: 0 is not",
        ),
        (
            webhook(json!({"clientConfig": {"poll": {"url": "http://a", "timeoutSeconds": -1}}})),
            "poll.timeoutSeconds: -1 is not",
        ),
        (webhook(json!({"parameters": [{"key": "a"}]})), "webhook.parameters[0]: either value or valueFrom"),
        (
            webhook(json!({"parameters": [{"key": "a", "value": "x".repeat(65_536)}]})),
            "webhook.parameters: the keys and fixed values have more than 65536 bytes together",
        ),
        (
            webhook(
                json!({"parameters": [{"key": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.containers[0].image"}}}]}),
            ),
            "parameters[0].valueFrom.fieldRef.fieldPath: \"spec.containers[0].image\": only metadata.labels",
        ),
        (
            webhook(json!({"parameters": [{"key": "a", "valueFrom": {"fieldRef": {"fieldPath": "podIP"}}}]})),
            "is not a field of a pod",
        ),
        (
            webhook(
                json!({"parameters": [{"key": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}}]}),
            ),
            "is not a valid key",
        ),
    ] {
        let findings = found(rule.clone());
        let texts = texts(&findings.errors);
        assert!(texts.iter().any(|text| text.contains(words)), "{rule}: {texts:?}");
        assert!(texts.iter().all(|text| text.len() < 500 && text.starts_with("spec.")), "{texts:?}");
    }
    let mut none = complete();
    none["spec"].as_object_mut().unwrap().remove("selector");
    assert!(texts(&checked(none).errors)[0].starts_with("spec.selector: is required"));
    let mut twice = complete();
    twice["spec"]["rules"][1]["name"] = json!("half");
    assert_eq!(
        texts(&checked(twice).errors),
        ["spec.rules[1].name: \"half\" is the name of another rule of this object"]
    );
    let mut many = complete();
    many["spec"]["rules"] =
        (0..65).map(|index| json!({"name": format!("r{index}"), "labelCheck": {"requires": {}}})).collect();
    assert_eq!(texts(&checked(many).errors), ["spec.rules: contains more than 64 rules"]);
}

#[test]
fn probable_mistakes_are_warnings() {
    for (rule, words) in [
        (
            json!({"stage": "PreTrafficOff", "labelCheck": {"requires": {}}}),
            "spec.rules[0].stage: \"PreTrafficOff\" is neither",
        ),
        (
            json!({"availablePolicy": {"maxUnavailableValue": 0}}),
            "maxUnavailableValue: with 0, no available pod",
        ),
        (
            json!({"availablePolicy": {"maxUnavailableValue": "0%"}}),
            "maxUnavailableValue: with 0, no available pod",
        ),
        (
            json!({"availablePolicy": {"minAvailableValue": "100%"}}),
            "minAvailableValue: with 100%, no available pod",
        ),
        (
            webhook(json!({"clientConfig": {"poll": {"url": "http://a", "timeoutSeconds": 1}}})),
            "shorter than intervalSeconds",
        ),
        (
            webhook(json!({"parameters": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]})),
            "occurs twice",
        ),
    ] {
        let findings = found(rule.clone());
        assert_eq!(findings.errors, [], "{rule}");
        assert!(
            texts(&findings.warnings).iter().any(|text| text.contains(words)),
            "{rule}: {:?}",
            findings.warnings
        );
    }
    let named = checked(json!({"metadata": {"name": "a".repeat(64)}, "spec": {"selector": {}}}));
    let fields: Vec<_> = named.warnings.iter().map(|finding| finding.field.as_str()).collect();
    assert_eq!((fields, named.errors), (vec!["metadata.name", "spec.rules"], vec![]));
}

#[test]
fn a_bundle_is_base64_of_pem_or_pem() {
    let pem = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let base64 = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &pem);
    let broken: Vec<&str> =
        base64.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    for (bundle, certificates) in
        [(base64.as_str(), 1), (&broken.join("\n"), 1), (&pem, 1), ("", 0), ("Cg==", 0)]
    {
        assert_eq!(ca_certificates(bundle).map(|found| found.len()), Ok(certificates), "{bundle}");
    }
    assert!(ca_certificates("-----BEGIN CERTIFICATE-----\nx\n").is_err());
}

#[test]
fn the_id_of_a_task_is_added_to_the_query() {
    for (url, key, id, asked) in [
        ("http://a.example/poll", "", "t-1", "http://a.example/poll?task-id=t-1"),
        ("http://a.example", "trace", "t-1", "http://a.example/?trace=t-1"),
        ("https://a.example:8443/poll?kind=a#part", "", "t", "https://a.example:8443/poll?kind=a&task-id=t"),
        ("http://a.example/poll?", "", "a&b=c/d e", "http://a.example/poll?task-id=a%26b%3Dc%2Fd+e"),
        ("http://[fd00::1]:1/x%20y", "k=", "ä", "http://[fd00::1]:1/x%20y?k%3D=%C3%A4"),
    ] {
        assert_eq!(WebhookUrl::parse(url).unwrap().for_task(key, id).to_string(), asked);
    }
    let url = WebhookUrl::parse("HTTPS://[fd00::1]/x").unwrap();
    assert_eq!((url.host(), url.port(), url.is_https()), ("fd00::1", 443, true));
    assert_eq!(WebhookUrl::parse("http://a").unwrap().port(), 80);
}

#[test]
fn parameters_are_evaluated_as_by_kusionstack() {
    let pod = json!({
        "apiVersion": "v1",
        "metadata": {"name": "web-0", "labels": {"b": "two \"2\"\n", "a": "1"}, "annotations": {"x.io/y": "<z>"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "args": ["a&b"]}], "priority": 7, "hostNetwork": true},
        "status": {"podIP": "10.0.0.1", "word": "null"},
    });
    for (path, value) in [
        ("metadata.name", "web-0"),
        ("metadata.uid", ""),
        ("metadata.labels", "a=\"1\"\nb=\"two \\\"2\\\"\\n\""),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['x.io/y']", "<z>"),
        ("status.podIP", "10.0.0.1"),
        ("status.podIP.more", ""),
        ("status.word", ""),
        ("spec.priority", "7"),
        ("spec.hostNetwork", "true"),
        ("spec.containers", r#"[{"args":["a\u0026b"],"name":"c"}]"#),
    ] {
        let parameter: Parameter =
            serde_json::from_value(json!({"key": "k", "valueFrom": {"fieldRef": {"fieldPath": path}}}))
                .unwrap();
        assert_eq!(parameter.evaluate(&pod), value, "{path}");
    }
    let literal: Parameter = serde_json::from_value(
        json!({"value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
    )
    .unwrap();
    assert_eq!((literal.evaluate(&pod), literal.reads_pod()), ("x".to_owned(), false));
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(url in "(https?://)?.*", bundle in ".*", path in "(metadata|spec|status)?.*", key in ".*", id in ".*", stage in ".*") {
        if let Ok(url) = WebhookUrl::parse(&url) {
            let asked = url.for_task(&key, &id);
            let query = asked.query().unwrap_or_default();
            let last = form_urlencoded::parse(query.as_bytes()).last().unwrap();
            let wanted = if key.is_empty() { "task-id" } else { key.as_str() };
            prop_assert_eq!((last.0.as_ref(), last.1.as_ref()), (wanted, id.as_str()));
        }
        let _ = ca_certificates(&bundle);
        let _ = FieldPath::parse(&path).map(|path| path.read(&json!({"metadata": {"labels": {"a": 1}}})));
        let _ = found(json!({"stage": stage, "name": key, "availablePolicy": {"maxUnavailableValue": id}}));
    }
}
