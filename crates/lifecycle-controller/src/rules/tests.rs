//! Rules against an API server in memory.

mod leader;
mod results;
mod server;
mod spaces;
mod statuses;

use podward_core::keys::{SERVICE_AVAILABLE, Stage};
use podward_core::rules::Refusal;
use serde_json::{Value, json};

use super::state::{Record, Said, State};

use leader::Leader;
use server::{Kind, Server};

fn budget(most: Value) -> Value {
    json!({
        "selector": {"matchLabels": {"app": "web"}},
        "rules": [{"name": "budget", "availablePolicy": {"maxUnavailableValue": most}}],
    })
}

#[test]
fn nothing_is_decided_before_the_pods_are_listed() {
    let (pods, _writer) = kube::runtime::reflector::store();
    let rule = json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": budget(json!(1)),
    });
    let mut state = State::default();
    state.put(Record::new(serde_json::from_value(rule).unwrap()), &pods, true);
    assert_eq!(state.take_touched("shop"), None);
    state.relist(&pods);
    assert_eq!(state.take_touched("shop"), Some(["web".to_owned()].into()));
}

#[test]
fn other_words_are_told_and_other_numbers_are_not() {
    let said = |reason: &str| Said {
        refusals: [("web".to_owned(), vec![Refusal::new("rule", reason)])].into(),
        ..Said::default()
    };
    let full = said("blocked: [max unavailable]=2/9, [current unavailable]=2/9");
    assert!(full.is_like(&said("blocked: [max unavailable]=2/9, [current unavailable]=3/9")));
    assert!(!full.is_like(&said("there is room")));
    let refused = said("rejected, traceId 946a2852-2482-414a-956e-8e1ad81ae84c, msg: a backup is made");
    assert!(
        refused
            .is_like(&said("rejected, traceId 29c321f3-4bee-4381-8135-df04bdab5920, msg: a backup is made"))
    );
    assert!(
        !refused.is_like(&said("rejected, traceId 29c321f3-4bee-4381-8135-df04bdab5920, msg: not today"))
    );
}

/// Whatever else goes wrong meanwhile.
#[tokio::test]
async fn an_object_is_written_once_a_second_though_another_is_not() {
    let server = Server::new();
    server.pods(4, 4);
    (0..4).for_each(|pod| server.label(&format!("web-{pod}"), "half", if pod < 2 { "a" } else { "b" }));
    for half in ["a", "b"] {
        let rules = json!([{"name": "budget", "availablePolicy": {"maxUnavailableValue": 1}}]);
        server.rule(half, json!({"selector": {"matchLabels": {"half": half}}, "rules": rules}));
    }
    server.disturb("b", 3);
    let mut leader = Leader::start(&server, "one");
    [0, 2, 3].iter().for_each(|pod| server.begin(&format!("web-{pod}")));
    let mut waits = false;
    leader
        .until("b can be written", |leader| {
            // There is something else to say about a all the time.
            waits = !waits;
            if waits {
                leader.server.begin("web-1")
            } else {
                leader.server.finish("web-1")
            }
            leader.server.label("web-1", "half", "a");
            let out = leader.server.out(4);
            leader.server.disturbances() == 0 && out.iter().any(|name| name.as_str() >= "web-2")
        })
        .await;
    leader.end().await;
}

#[test]
fn that_operators_are_told_from_now_on_is_news() {
    let refusals: std::collections::BTreeMap<_, _> =
        [("web".to_owned(), vec![Refusal::new("rule", "no")])].into();
    let held = Said { refusals: refusals.clone(), ..Said::default() };
    let told = Said { refusals, told: ["web".to_owned()].into(), ..Said::default() };
    assert!(!held.is_like(&told) && told.is_like(&told.clone()));
}

fn is_out(server: &Server, name: &str) -> bool {
    !server.labels(name).contains_key(SERVICE_AVAILABLE)
}

#[tokio::test]
async fn many_ask_at_once_and_the_budget_holds() {
    let server = Server::new();
    server.pods(20, 20);
    server.rule("web", budget(json!("25%")));
    let mut leader = Leader::start(&server, "one");
    (0..20).for_each(|number| server.begin(&format!("web-{number}")));
    let mut worst = 0;
    leader
        .until("a quarter is out", |leader| {
            worst = worst.max(leader.server.out(20).len());
            worst >= 5
        })
        .await;
    // Whoever is out comes back, and the next go, the oldest first.
    let mut served: Vec<String> = Vec::new();
    leader
        .until("everybody was out once", |leader| {
            let out = leader.server.out(20);
            worst = worst.max(out.len());
            for name in out {
                leader.server.finish(&name);
                served.push(name);
            }
            served.len() == 20
        })
        .await;
    assert_eq!(worst, 5, "never more");
    for (place, names) in served.chunks(5).enumerate() {
        let is_its_turn = |name: &String| name[4..].parse::<usize>().unwrap() / 5 == place;
        assert!(names.iter().all(is_its_turn), "the oldest first: {served:?}");
    }
    leader
        .until("nobody waits any more", |leader| {
            leader.server.status_writes().last().is_some_and(|status| {
                status["waitingCount"] == 0 && status["grants"].is_null() && status["details"].is_null()
            })
        })
        .await;
    let writes = server.status_writes();
    assert!(writes.len() <= 12, "{} writes", writes.len());
    let last = writes.last().unwrap();
    assert_eq!((&last["targetCount"], &last["conditions"][0]["status"]), (&json!(20), &json!("True")));
    assert_eq!(last["targets"].as_array().unwrap().len(), 20);
    leader.end().await;
}

#[tokio::test]
async fn there_is_no_window_before_a_rule_is_known() {
    let server = Server::new();
    server.pods(1, 1);
    server.hold_watch(true);
    let mut leader = Leader::start(&server, "one");
    leader.until("rules are watched", |leader| leader.server.rule_watches() > 0).await;
    server.rule("web", budget(json!(0)));
    server.begin("web-0");
    let mut said = String::new();
    leader.follow();
    // As long as the watch brings nothing the rule is missing, and the operation waits.
    for _ in 0..50 {
        said = leader.look("web-0");
        assert!(!is_out(&server, "web-0"));
        tokio::task::yield_now().await;
    }
    assert!(said.contains("the rules for it are being looked up"), "{said}");
    server.hold_watch(false);
    leader
        .until("the rule refuses", |leader| {
            assert!(!is_out(&leader.server, "web-0"));
            leader.look("web-0").contains(
                "rule web/budget: [budget] blocked by max unavailable policy: [max unavailable]=0/1",
            )
        })
        .await;
    server.delete(Kind::Rules, "web");
    leader.until("the rule is gone, and the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

#[tokio::test]
async fn rules_that_can_not_be_listed_are_not_taken_for_none() {
    let server = Server::new();
    server.pods(1, 1);
    server.fail_lists(true);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader
        .until("the reason is told", |leader| {
            assert!(!is_out(&leader.server, "web-0"));
            leader.look("web-0").contains("can't be looked up")
        })
        .await;
    server.fail_lists(false);
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

#[tokio::test]
async fn without_the_resource_there_are_no_rules() {
    let server = Server::new().without_rules();
    server.pods(1, 1);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    assert!(server.status_writes().is_empty());
    leader.end().await;
}

#[tokio::test]
async fn every_refusal_is_told_and_a_label_lets_go_on() {
    let server = Server::new();
    server.pods(2, 2);
    let labels = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "rules": [
            {"name": "ready", "labelCheck": {"requires": {"matchLabels": {"ready": "yes"}}}},
            {"name": "tested", "labelCheck": {"requires": {"matchLabels": {"tested": "yes"}}}},
        ],
    });
    server.rule("labels", labels);
    server.rule("zero", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader
        .until("both are told", |leader| {
            let said = leader.look("web-0");
            let refused = |rule: &str| {
                said.contains(&format!("rule labels/{rule}: block by label check policy, pod shop/web-0"))
            };
            refused("ready") && refused("tested") && said.contains("rule zero/budget: there is room")
        })
        .await;
    let is_told =
        |status: &Value| status["details"][0]["rejectInfo"].as_array().is_some_and(|info| info.len() == 2);
    leader.until("the status tells it", |leader| leader.server.status_writes().iter().any(is_told)).await;
    assert!(
        !server.status_writes().iter().any(|status| status["grants"].is_array()),
        "no room for who can't use it"
    );
    server.label("web-0", "ready", "yes");
    server.label("web-0", "tested", "yes");
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    let object = server.get(Kind::Pods, "web-0").unwrap();
    let detail = &object["metadata"]["annotations"]["detail.podtransitionrule.kusionstack.io/labels"];
    assert_eq!(detail, r#"{"stage":"PreCheck","passed":true}"#);
    leader.end().await;
}

#[tokio::test]
async fn replicas_that_are_missing_count() {
    let server = Server::new();
    server.pods(4, 5);
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader
        .until("one replica is missing", |leader| {
            assert!(!is_out(&leader.server, "web-0"));
            leader.look("web-0").contains("[missing replicas]=1")
        })
        .await;
    server.scale(4);
    leader.until("it isn't missing any more", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// A second controller takes over while the first still believes that it leads.
#[tokio::test]
async fn two_controllers_do_not_overdraw_a_budget() {
    let server = Server::new();
    server.pods(8, 8);
    server.rule("web", budget(json!(2)));
    let mut first = Leader::start(&server, "one");
    (0..8).for_each(|number| server.begin(&format!("web-{number}")));
    first.until("two are out", |leader| leader.server.out(8).len() == 2).await;
    let lists = server.pod_lists();
    let mut second = Leader::start(&server, "two");
    let mut done = 0;
    // The first goes on to look, at pods as it saw them before.
    second
        .until("everybody was out once", |second| {
            first.look_at_all();
            let out = second.server.out(8);
            assert!(out.len() <= 2, "{out:?}");
            let granted = out
                .iter()
                .filter(|name| second.server.labels(name).contains_key(&Stage::PreChecked.key("a")));
            for name in granted.cloned().collect::<Vec<_>>() {
                second.server.finish(&name);
                done += 1;
            }
            if done % 3 == 2 {
                first.follow();
            }
            done == 8
        })
        .await;
    assert!(server.pod_lists() > lists, "who finds another one's ledger reads the pods");
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn people_are_told_who_refuses_and_what_comes_next() {
    let server = Server::new();
    server.pods(1, 1);
    server.rule("web", budget(json!(0)));
    let labels = json!({"matchLabels": {"backup": "done"}});
    let rules: Vec<Value> = (0..3)
        .map(|number| json!({"name": format!("b{number}"), "labelCheck": {"requires": labels}}))
        .collect();
    server.rule("backups", json!({"selector": {"matchLabels": {"app": "web"}}, "rules": rules}));
    let mut leader = Leader::start(&server, "one");
    assert!(leader.words("web-0").is_empty(), "it asks nothing");
    server.begin("web-0");
    leader.until("all refuse", |leader| leader.look("web-0").contains("web/budget")).await;
    let words = leader.words("web-0");
    assert_eq!(words.len(), 1);
    for part in [
        "rule b0 (labelCheck) of PodTransitionRule shop/backups refuses it: block by label check policy",
        "[next: the pod goes on as soon as its labels match",
        "; and 2 more refuse",
    ] {
        assert!(words[0].contains(part), "{words:?}");
    }
    leader.end().await;
}
