use serde_json::{Value, json};

use super::*;

fn facts(container: Value, spec: Value) -> OptInFacts {
    let mut server = json!({
        "name": "server", "ports": [{"containerPort": 80}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 80}},
    });
    let merge = |into: &mut Value, from: Value| {
        into.as_object_mut().unwrap().extend(from.as_object().unwrap().clone());
    };
    merge(&mut server, container);
    let mut whole = json!({"containers": [server]});
    merge(&mut whole, spec);
    OptInFacts {
        template: serde_json::from_value(json!({"metadata": {"labels": {"app": "web"}}, "spec": whole}))
            .unwrap(),
        replicas: Some(2),
        recreates: false,
        services: vec![service(json!({}))],
        budgets: vec![budget("web", json!({"maxUnavailable": 1}))],
    }
}

fn service(more: Value) -> Service {
    let mut spec = json!({"selector": {"app": "web"}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap()
}

fn budget(name: &str, more: Value) -> PodDisruptionBudget {
    let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn found(facts: &OptInFacts) -> Vec<(AdviceLevel, String)> {
    advice(facts).into_iter().map(|advice| (advice.level, advice.what)).collect()
}

fn has(facts: &OptInFacts, level: AdviceLevel, words: &str) {
    let found = found(facts);
    assert!(
        found.iter().any(|(of, what)| *of == level && what.contains(words)),
        "{words} is not in {found:?}"
    );
}

#[test]
fn a_workload_in_order_has_no_advice() {
    assert_eq!(found(&facts(json!({}), json!({}))), []);
}

#[test]
fn containers_are_looked_at() {
    let of = |container: Value| facts(container, json!({}));
    has(&of(json!({"readinessProbe": null})), AdviceLevel::Problem, "has no readiness probe");
    let same = json!({"livenessProbe": {"httpGet": {"path": "/readyz", "port": 80}}});
    has(&of(same), AdviceLevel::Warning, "is its readiness probe");
    let sleeps = |command: Value| of(json!({"lifecycle": {"preStop": command}}));
    has(&sleeps(json!({"sleep": {"seconds": 5}})), AdviceLevel::Note, "sleeps for 5 s");
    let exec = json!({"exec": {"command": ["sh", "-c", "sleep 60"]}});
    has(&sleeps(exec), AdviceLevel::Problem, "sleeps for 60 s, all of its grace period of 30 s");
    has(&of(json!({"command": ["/bin/sh", "-c"], "args": ["./server"]})), AdviceLevel::Warning, "by a shell");
    assert_eq!(found(&of(json!({"command": ["sh", "-c", "exec ./server"]}))), []);
    has(
        &facts(json!({}), json!({"terminationGracePeriodSeconds": 2})),
        AdviceLevel::Warning,
        "is 2: requests",
    );
}

#[test]
fn the_workload_and_what_selects_it_are_looked_at() {
    let all = || facts(json!({}), json!({}));
    has(&OptInFacts { replicas: Some(1), ..all() }, AdviceLevel::Warning, "one replica");
    has(&OptInFacts { recreates: true, ..all() }, AdviceLevel::Problem, "Recreate");
    has(&OptInFacts { services: Vec::new(), ..all() }, AdviceLevel::Note, "no Service");
    let unready = vec![service(json!({"publishNotReadyAddresses": true}))];
    has(&OptInFacts { services: unready, ..all() }, AdviceLevel::Problem, "not ready");
    let headless = vec![service(json!({"clusterIP": "None"}))];
    has(&OptInFacts { services: headless, ..all() }, AdviceLevel::Note, "headless");
    has(&OptInFacts { budgets: Vec::new(), ..all() }, AdviceLevel::Warning, "no PodDisruptionBudget");
    let two = vec![budget("a", json!({"maxUnavailable": 1})), budget("b", json!({"maxUnavailable": 1}))];
    has(&OptInFacts { budgets: two, ..all() }, AdviceLevel::Problem, "more than one PodDisruptionBudget");
    for limit in [json!({"maxUnavailable": 0}), json!({"minAvailable": 2}), json!({"minAvailable": "100%"})] {
        let budgets = vec![budget("web", limit)];
        has(&OptInFacts { budgets, ..all() }, AdviceLevel::Problem, "never allows an eviction");
    }
    for (limit, replicas, is_never) in [
        (json!({"minAvailable": "75%"}), 2, true),
        (json!({"minAvailable": "75%"}), 4, false),
        (json!({"minAvailable": "99%"}), 100, false),
        (json!({"minAvailable": "91%"}), 10, true),
        (json!({"minAvailable": "50%"}), 0, false),
        (json!({"maxUnavailable": "1%"}), 2, false),
        (json!({"maxUnavailable": "0%"}), 2, true),
    ] {
        let facts =
            OptInFacts { budgets: vec![budget("web", limit.clone())], replicas: Some(replicas), ..all() };
        let is_found = found(&facts).iter().any(|(_, what)| what.contains("never allows an eviction"));
        assert_eq!(is_found, is_never, "{limit} of {replicas}");
    }
    let mut out = all();
    out.template
        .metadata
        .as_mut()
        .unwrap()
        .labels
        .as_mut()
        .unwrap()
        .insert(CONTROL_LABEL.to_owned(), "false".to_owned());
    has(&out, AdviceLevel::Warning, "which keeps them out");
}
