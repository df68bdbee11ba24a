//! Results that rules refuse, and whose operators are told so.

use podward_core::keys::{POST_CHECK_REJECTION, REFUSED, Stage};
use serde_json::json;

use super::leader::Leader;
use super::server::{Kind, Server};

fn is_told(server: &Server) -> bool {
    server.labels("web-0").contains_key(&Stage::Rollback.key("a"))
}

/// Nobody is expected to take the pod in, so that the operation is over with it.
fn is_accepted(server: &Server) -> bool {
    !server.labels("web-0").contains_key(&Stage::PostCheck.key("a"))
}

/// From holding to telling, across a leader change, until the result is good.
#[tokio::test]
async fn a_refused_result_is_told_until_its_rule_agrees() {
    let server = Server::new();
    server.pods(1, 1);
    let good = json!({"name": "good", "stage": "PostCheck", "labelCheck": {"requires": {"matchLabels": {"good": "yes"}}}});
    server.rule("web", json!({"selector": {"matchLabels": {"app": "web"}}, "rules": [good]}));
    let mut first = Leader::start(&server, "one");
    server.judge("web-0");
    first
        .until("the result is held", |leader| {
            leader.look("web-0").contains("rule web/good: block by label check")
        })
        .await;
    assert!(!is_told(&server) && !is_accepted(&server), "{:?}", server.labels("web-0"));

    server.annotate_rule("web", POST_CHECK_REJECTION, "Rollback");
    first.until("the operator is told", |leader| is_told(&leader.server)).await;
    let object = server.get(Kind::Pods, "web-0").unwrap();
    let record = object["metadata"]["annotations"][REFUSED].as_str().unwrap_or_default();
    assert!(record.contains(r#"{"a":{"rule web/good":{"reason":"block by label check policy"#), "{record}");
    first.end().await;

    // The next one doesn't know at first which rules there are.
    server.hold_watch(true);
    let mut second = Leader::start(&server, "two");
    for _ in 0..50 {
        let said = second.look("web-0");
        assert!(said.contains("its result is refused by rule web/good"), "{said}");
        assert!(is_told(&server) && !is_accepted(&server));
        tokio::task::yield_now().await;
    }
    server.hold_watch(false);
    second
        .until("it knows the rule", |leader| {
            leader.look("web-0").contains("rule web/good: block by label check")
        })
        .await;
    assert!(is_told(&server) && !is_accepted(&server));
    server.label("web-0", "good", "yes");
    second.until("the result is accepted", |leader| is_accepted(&leader.server)).await;
    assert!(!is_told(&server));
    let object = server.get(Kind::Pods, "web-0").unwrap();
    assert!(object["metadata"]["annotations"][REFUSED].is_null(), "{object}");
    second.end().await;
}
