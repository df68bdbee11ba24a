//! Rules that have, or had, a webhook.

use serde_json::json;

use super::api_server::ApiServer;
use super::leader::Leader;

#[tokio::test]
async fn a_webhook_that_is_taken_from_a_rule_is_not_called_any_more() {
    let server = ApiServer::new();
    server.pods(1, 1);
    let spec = |check: (&str, serde_json::Value)| json!({"selector": {"matchLabels": {"app": "web"}}, "rules": [{"name": "outside", check.0: check.1}]});
    server.rule("web", spec(("webhook", json!({"clientConfig": {"url": "https://127.0.0.1:1"}}))));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("the webhook is called", |leader| leader.rules.context.webhooks.count() == 1).await;
    server.rule("web", spec(("labelCheck", json!({"requires": {"matchLabels": {"ready": "yes"}}}))));
    leader.until("it is not called any more", |leader| leader.rules.context.webhooks.count() == 0).await;
    leader.end().await;
}
