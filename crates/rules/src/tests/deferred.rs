//! Rule objects that are decided about later: pods have to be listed or owners have to be read first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use podward_core::keys::{SKIP_RULES, Stage};
use podward_core::rules::{CheckRequest, CheckStage};
use podward_support::metrics_text;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::super::state::{ChangedSets, NamespaceRules, OWNER_RECHECK_DELAY, ObservedPod, RuleRecord};
use super::api_server::ApiServer;
use super::leader::{Leader, pod};
use super::outside_pods::{label_check, outside, store, unrelated_pod};
use super::{budget, is_out};

/// A webhook that answers its first call when it is told to.
struct Webhook {
    listener: TcpListener,
    call: Option<TcpStream>,
    is_asked: bool,
}

impl Webhook {
    async fn start() -> Self {
        Webhook { listener: TcpListener::bind("127.0.0.1:0").await.unwrap(), call: None, is_asked: false }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.listener.local_addr().unwrap())
    }

    /// Returns true if the answer is sent.
    fn answer(&mut self, answer: &Value) -> bool {
        if self.call.is_none() {
            self.call = self.listener.accept().now_or_never().map(|call| call.unwrap().0);
        }
        let Some(call) = &self.call else { return false };
        self.is_asked = self.is_asked || call.try_read(&mut [0; 4096]).is_ok();
        let text = answer.to_string();
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        self.is_asked && call.try_write(text.as_bytes()).is_ok()
    }
}

/// Returns a rule object with a budget of 1 and a webhook in `stage`.
fn budget_and_webhook(stage: &str, client: Value) -> Value {
    let mut spec = budget(json!(1));
    let webhook = json!({"clientConfig": client, "failurePolicy": "Fail"});
    let rule = json!({"name": "outside", "stage": stage, "webhook": webhook});
    spec["rules"].as_array_mut().unwrap().push(rule);
    spec
}

/// A pod that is out of service needs no room.
#[tokio::test]
async fn a_result_is_accepted_while_pods_cannot_be_listed() {
    let mut webhook = Webhook::start().await;
    let server = ApiServer::new();
    server.pods(1, 2);
    store(&server, outside("old-1"));
    server.rule("web", budget_and_webhook("PostCheck", json!({"url": webhook.url()})));
    server.fail_outside_lists(true);
    let mut leader = Leader::start(&server, "one");
    server.finish_work("web-0");
    let (mut waited, mut is_answered) = (0, false);
    leader
        .until("the result is accepted", |leader| {
            if !is_answered {
                let waits = leader.reconcile("web-0").contains("its webhook has not answered yet");
                waited = if waits && leader.server.outside_lists() > 0 { waited + 1 } else { 0 };
                is_answered = waited > 20 && webhook.answer(&json!({"success": true}));
            }
            // Only the decision has the pod reconciled.
            !leader.server.labels("web-0").contains_key(&Stage::PostCheck.key("a"))
        })
        .await;
    leader.end().await;
}

/// Another leader would have the webhook begin another one.
#[tokio::test]
async fn a_task_of_a_webhook_is_stored_while_pods_cannot_be_listed() {
    let mut webhook = Webhook::start().await;
    let server = ApiServer::new();
    server.pods(1, 2);
    store(&server, outside("old-1"));
    let url = webhook.url();
    server.rule("web", budget_and_webhook("PreCheck", json!({"url": url, "poll": {"url": url}})));
    server.fail_outside_lists(true);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    let mut is_answered = false;
    leader
        .until("the task is stored", |leader| {
            let answer = json!({"success": true, "poll": true, "taskId": "task-1"});
            is_answered = is_answered || webhook.answer(&answer);
            leader
                .server
                .status_writes()
                .iter()
                .any(|status| status["ruleStates"].to_string().contains("task-1"))
        })
        .await;
    assert!(!is_out(&server, "web-0"));
    let mut quiet = 0;
    leader
        .until("nothing is left to decide", |leader| {
            let cache = leader.rules.context.cache.lock();
            let is_quiet = cache.namespaces["shop"].changed_sets == ChangedSets::default();
            quiet = if is_quiet { quiet + 1 } else { 0 };
            quiet == 20
        })
        .await;
    assert_eq!(server.pod_lists(), 1, "this controller wrote the status itself");
    leader.end().await;
}

/// Creates a pod of the ReplicaSet `owner`, with the labels `sets`.
fn of_owner(server: &ApiServer, mut object: Value, owner: &str, sets: &[&str]) {
    let reference = &mut object["metadata"]["ownerReferences"][0];
    (reference["name"], reference["uid"]) = (json!(owner), json!(owner));
    sets.iter().for_each(|set| object["metadata"]["labels"][*set] = json!("yes"));
    store(server, object);
}

/// Creates the rule objects `a` and `b`, and the pods that they select: one each, and one that both do. The array has
/// the name of each object and of its owner, the budget, and the replicas that the owner wants.
fn rules_that_share_a_pod(server: &ApiServer, rules: [(&str, usize, usize); 2]) {
    of_owner(server, pod("a-0"), "a", &["a"]);
    of_owner(server, pod("both"), "a", &["a", "b"]);
    of_owner(server, pod("b-0"), "b", &["b"]);
    [("old-1", "a"), ("old-2", "a"), ("old-3", "b")]
        .iter()
        .for_each(|(name, owner)| of_owner(server, outside(name), owner, &[]));
    for (name, most, replicas) in rules {
        let mut spec = budget(json!(most));
        spec["selector"] = json!({"matchLabels": {name: "yes"}});
        server.rule(name, spec);
        server.scale_owner(name, replicas);
    }
}

/// A list runs for the first rule object when the pod of both begins to wait.
#[tokio::test]
async fn pods_are_listed_together_for_rules_that_select_the_same_pod() {
    let server = ApiServer::new();
    rules_that_share_a_pod(&server, [("a", 2, 4), ("b", 1, 2)]);
    server.hold_outside_lists(true);
    let mut leader = Leader::start(&server, "one");
    server.begin("a-0");
    leader.until("pods are listed", |leader| leader.server.outside_lists() > 0).await;
    server.begin("both");
    leader.until("it waits", |leader| leader.reconcile("both").contains("waits for its turn")).await;
    server.hold_outside_lists(false);
    leader.until("the pod of both goes", |leader| is_out(&leader.server, "both")).await;
    assert!(server.outside_lists() <= 8, "{} lists", server.outside_lists());
    leader.end().await;
}

/// The pods begin to wait at different times.
#[tokio::test]
async fn pods_are_listed_again_together_for_rules_that_select_the_same_pod() {
    let server = ApiServer::new();
    rules_that_share_a_pod(&server, [("a", 1, 5), ("b", 1, 3)]);
    let mut leader = Leader::start(&server, "one");
    let refused = |leader: &mut Leader, name: &str| leader.reconcile(name).contains("[missing replicas]=");
    server.begin("a-0");
    leader.until("a pod is missing", |leader| refused(leader, "a-0")).await;
    tokio::time::sleep(OWNER_RECHECK_DELAY / 2).await;
    ["both", "b-0"].iter().for_each(|name| server.begin(name));
    leader.until("the others wait, too", |leader| refused(leader, "both") && refused(leader, "b-0")).await;
    let (before, begun) = (server.outside_lists(), Instant::now());
    leader.until("some time has passed", |_| begun.elapsed() > 4 * OWNER_RECHECK_DELAY).await;
    let lists = server.outside_lists() - before;
    assert!(lists <= 2 * 5, "{lists} lists of 2 owners");
    leader.end().await;
}

/// A list counts for two seconds, and a write is followed by a pause of one.
#[tokio::test]
async fn slow_writes_do_not_make_a_list_too_old() {
    let server = ApiServer::new();
    server.pods(1, 2);
    store(&server, outside("old-1"));
    unrelated_pod(&server);
    server.rule("web", budget(json!(1)));
    server.delay_status_writes(Duration::from_millis(1200));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    let mut changed = Instant::now();
    leader
        .until("the pod goes", |leader| {
            // The other object has to be written after each decision.
            if changed.elapsed() > Duration::from_millis(200) {
                changed = Instant::now();
                leader.server.finish("alone");
                leader.server.label("alone", "app", "other");
                leader.server.begin("alone");
            }
            is_out(&leader.server, "web-0")
        })
        .await;
    leader.end().await;
}

#[tokio::test]
async fn a_refused_pod_says_that_pods_cannot_be_listed_and_a_pod_of_another_rule_does_not() {
    let server = ApiServer::new();
    server.pods(1, 2);
    let mut late = outside("old-1");
    late["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    store(&server, late);
    unrelated_pod(&server);
    let mut spec = budget(json!(0));
    spec["selector"] = json!({"matchLabels": {"app": "other"}});
    server.rule("other", spec);
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader
        .until("a pod is missing", |leader| leader.reconcile("web-0").contains("[missing replicas]=1"))
        .await;
    server.fail_outside_lists(true);
    let why = "waits until budgets can be kept";
    // The worker has the pod reconciled.
    leader.until("the reason is reported", |leader| leader.message("web-0").contains(why)).await;
    server.begin("alone");
    leader
        .until("the other pod is refused", |leader| {
            let message = leader.reconcile("alone");
            assert!(!message.contains(why), "{message}");
            message.contains("[max unavailable]=0/1")
        })
        .await;
    server.fail_outside_lists(false);
    leader
        .until("the pod is refused again", |leader| leader.message("web-0").contains("[missing replicas]=1"))
        .await;
    leader.end().await;
}

/// The reason that a pod shows is then another one.
#[test]
fn waiting_pods_are_reconciled_when_a_failure_begins_or_ends() {
    let rule = json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": budget(json!(1)),
    });
    let request =
        CheckRequest { stage: CheckStage::PreCheck, operation: "a".to_owned(), asked_at: "1".to_owned() };
    let mut rules = NamespaceRules::default();
    rules.records.insert("web".to_owned(), RuleRecord::new(serde_json::from_value(rule).unwrap()));
    for (name, set, requests) in [
        ("waits", "web", vec![request.clone()]),
        ("rests", "web", Vec::new()),
        ("alone", "other", vec![request]),
    ] {
        let observed = ObservedPod {
            pod: Arc::new(serde_json::from_value(pod(name)).unwrap()),
            requests,
            skipped: Arc::default(),
            ends_workload: false,
            sets: vec![set.to_owned()],
        };
        rules.pods.insert(name.to_owned(), observed);
    }
    let (web, other) = (["web".to_owned()].into(), ["other".to_owned()].into());
    let failed = |set: &str| [(set.to_owned(), "denied".to_owned())];
    let mut set_errors = |decided: &BTreeSet<String>, errors: Vec<(String, String)>| {
        let told = rules.set_errors(decided, errors).into_iter();
        told.map(|pod| pod.name).collect::<Vec<String>>()
    };
    assert_eq!(set_errors(&web, failed("web").into()), ["waits"]);
    assert_eq!(set_errors(&web, failed("web").into()), [""; 0]);
    assert_eq!(set_errors(&other, failed("other").into()), [""; 0], "there is no such rule object");
    assert_eq!(set_errors(&web, Vec::new()), ["waits"]);
}

#[tokio::test]
async fn other_rules_continue_while_owners_cannot_be_read() {
    let server = ApiServer::new();
    server.pods(1, 1);
    unrelated_pod(&server);
    server.rule("web", budget(json!(1)));
    server.fail_owner_reads(true);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    // After so many failures, the next read is after 8 s or later.
    leader.until("the owner is read again and again", |leader| leader.server.failed_owner_reads() >= 6).await;
    let begun = Instant::now();
    server.begin("alone");
    leader.until("the other pod goes", |leader| is_out(&leader.server, "alone")).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(!is_out(&server, "web-0"));
    leader.end().await;
}

/// It skips the budget whose owners cannot be read, and needs room in another one.
#[tokio::test]
async fn a_pod_that_needs_no_room_in_a_deferred_budget_gets_room_in_another() {
    let server = ApiServer::new();
    server.pods(1, 1);
    let mut alone = pod("alone");
    alone["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    alone["metadata"]["labels"]["b"] = json!("yes");
    alone["metadata"]["annotations"] = json!({SKIP_RULES: r#"{"skipRules":["budget"]}"#});
    store(&server, alone);
    server.rule("web", budget(json!(1)));
    let rules = json!([{"name": "room", "availablePolicy": {"maxUnavailableValue": 1}}]);
    server.rule("b", json!({"selector": {"matchLabels": {"b": "yes"}}, "rules": rules}));
    server.fail_owner_reads(true);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("the owner is read", |leader| leader.server.failed_owner_reads() > 0).await;
    server.begin("alone");
    leader.until("the pod that skips goes", |leader| is_out(&leader.server, "alone")).await;
    assert!(!is_out(&server, "web-0"));
    leader.end().await;
}

#[tokio::test]
async fn a_pod_that_begins_to_wait_for_a_deferred_budget_is_in_the_metrics() {
    let server = ApiServer::new();
    server.pods(1, 1);
    server.label("web-0", "b", "yes");
    server.rule("web", budget(json!(1)));
    label_check(&server);
    server.fail_owner_reads(true);
    let mut leader = Leader::start(&server, "one");
    let mut registry = Registry::with_prefix("podward");
    leader.rules.context.metrics.register(&mut registry);
    server.begin("web-0");
    leader.until("the owner is read twice", |leader| leader.server.failed_owner_reads() >= 2).await;
    let text = metrics_text(&registry);
    let [web, b] = ["web", "b"].map(|name| format!("since_timestamp_seconds{{object=\"shop/{name}\"}}"));
    for series in [&web, &b, "pods{pod_namespace=\"shop\"} 1"] {
        assert!(text.contains(&format!("podward_rule_waiting_{series}")), "{text}");
    }
    server.label("web-0", "ready", "yes");
    leader.until("the other rule passes", |_| !metrics_text(&registry).contains(&b)).await;
    assert!(metrics_text(&registry).contains(&web));
    server.fail_owner_reads(false);
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// The other rule object has to list pods for each decision.
#[tokio::test]
async fn an_owner_that_cannot_be_read_has_only_its_own_rules_decided_again() {
    let server = ApiServer::new();
    server.pods(1, 3);
    store(&server, outside("old-1"));
    server.rule("web", budget(json!(1)));
    let mut other = pod("b-0");
    other["metadata"]["labels"]["app"] = json!("b");
    of_owner(&server, other, "b", &[]);
    let mut spec = budget(json!(1));
    spec["selector"] = json!({"matchLabels": {"app": "b"}});
    server.rule("b", spec);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    let refused = |leader: &mut Leader| leader.reconcile("web-0").contains("[missing replicas]=1");
    leader.until("a pod is missing", refused).await;
    server.fail_owner_reads(true);
    server.begin("b-0");
    leader.until("the owner is read", |leader| leader.server.failed_owner_reads() > 0).await;
    let (before, begun) = (server.outside_lists(), Instant::now());
    leader.until("it is read again and again", |leader| leader.server.failed_owner_reads() >= 4).await;
    let own = 1 + begun.elapsed().as_millis() / OWNER_RECHECK_DELAY.as_millis();
    let lists = u128::try_from(server.outside_lists() - before).unwrap();
    assert!(lists <= own, "{lists} lists, of which {own} are of the rule object itself");
    leader.end().await;
}
