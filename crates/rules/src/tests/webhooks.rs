//! Rules that have, or had, a webhook.

use serde_json::{Value, json};

use super::api_server::ApiServer;
use super::leader::Leader;

/// Returns a rule set with one rule, whose `check` is `settings`.
fn with(check: &str, settings: Value) -> Value {
    json!({
        "selector": {"matchLabels": {"app": "web"}},
        "rules": [{"name": "outside", check: settings}],
    })
}

#[tokio::test]
async fn a_webhook_that_is_taken_from_a_rule_is_not_called_any_more() {
    let server = ApiServer::new();
    server.pods(1, 1);
    server.rule("web", with("webhook", json!({"clientConfig": {"url": "https://127.0.0.1:1"}})));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("the webhook is called", |leader| leader.rules.context.webhooks.count() == 1).await;
    server.rule("web", with("labelCheck", json!({"requires": {"matchLabels": {"ready": "yes"}}})));
    leader.until("it is not called any more", |leader| leader.rules.context.webhooks.count() == 0).await;
    leader.end().await;
}
