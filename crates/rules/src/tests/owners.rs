//! Which owners are watched, and what happens to operations that wait for another one.

use serde_json::json;

use super::api_server::{ApiServer, Kind};
use super::leader::{Leader, pod};
use super::{budget, is_out};

/// Creates the pod `name`, which its own ReplicaSet `owner` and the rule set `owner` with a budget of 1 select.
fn pod_of_owner(server: &ApiServer, name: &str, owner: &str) {
    let mut object = pod(name);
    object["metadata"]["labels"]["part"] = json!(owner);
    (object["metadata"]["ownerReferences"][0]["name"], object["metadata"]["ownerReferences"][0]["uid"]) =
        (json!(owner), json!(owner));
    server.store(Kind::Pods, object, None).unwrap();
    let mut spec = budget(json!(1));
    spec["selector"]["matchLabels"] = json!({"part": owner});
    server.rule(owner, spec);
}

#[tokio::test]
async fn an_owner_is_watched_only_while_an_operation_waits() {
    let server = ApiServer::new();
    pod_of_owner(&server, "web-0", "a");
    pod_of_owner(&server, "web-1", "b");
    server.scale_owner("a", 2);
    server.scale_owner("b", 1);
    let mut leader = Leader::start(&server, "one");
    let watched = |leader: &Leader| leader.rules.context.owners.watched();
    server.begin("web-0");
    leader
        .until("a replica of a is missing", |leader| {
            leader.reconcile("web-0").contains("[missing replicas]=1")
        })
        .await;
    assert_eq!(watched(&leader), ["a"]);
    server.begin("web-1");
    leader.until("the pod of b goes", |leader| is_out(&leader.server, "web-1")).await;
    leader.until("b does not count any more, and a does", |leader| watched(leader) == ["a"]).await;
    server.scale_owner("a", 1);
    leader.until("the pod of a goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.until("no owner counts", |leader| watched(leader).is_empty()).await;
    leader.end().await;
}

/// Another namespace has all watches.
#[tokio::test]
async fn an_operation_that_waits_for_an_owner_that_is_not_watched_is_tried_again() {
    let server = ApiServer::new();
    server.pods(4, 5);
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    for number in 0..200 {
        let owner = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("other-{number}"), "uid": number.to_string(),
        }));
        leader.rules.context.owners.wanted("other", &owner.unwrap()).await.unwrap();
    }
    server.begin("web-0");
    leader
        .until("one replica is missing", |leader| leader.reconcile("web-0").contains("[missing replicas]=1"))
        .await;
    let owners = leader.rules.context.owners.watched();
    assert_eq!((owners.len(), owners.contains(&"web".to_owned())), (200, false));
    let mut quiet = 0;
    leader
        .until("nothing is left to decide", |leader| {
            let cache = leader.rules.context.cache.lock();
            let is_quiet = cache.namespaces["shop"].changed_sets == Default::default();
            quiet = if is_quiet { quiet + 1 } else { 0 };
            quiet == 20
        })
        .await;
    server.scale(4);
    leader.until("it isn't missing any more", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}
