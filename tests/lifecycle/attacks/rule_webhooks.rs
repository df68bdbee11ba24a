//! Rules whose URLs lead to where only Podward gets.

use std::{net::IpAddr, sync::Arc};

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures::future::try_join_all;
use hyper::Uri;
use k8s_openapi::api::{core::v1::Service, events::v1::Event};
use kube::{Api, api::ListParams};
use podward_e2e::{Fixture, Test};
use serde_json::json;

use crate::rules::objects::{finish_all, put, remove, rule_for, rules_of, serving, told, until_refused};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("attack_rule_webhook_at_the_api_server_is_refused", api_server_is_refused),
        Test::simulated("attack_rule_webhook_response_is_not_repeated", responses_are_not_repeated),
    ]
}

/// The URL of the lifecycle-controller's own client, and the cluster IP of the Service `default/kubernetes`.
async fn api_server_is_refused(fixture: Arc<Fixture>) -> Result<()> {
    let services: Api<Service> = Api::namespaced(fixture.client(), "default");
    let service = services.get("kubernetes").await.context("read the Service of the API server")?;
    let cluster_ip = service.spec.and_then(|spec| spec.cluster_ip).context("it has no cluster IP")?;
    let cluster_ip: IpAddr = cluster_ip.parse().context("parse the cluster IP")?;
    let test_cluster = fixture.cluster().test_cluster().context("this cluster is no test cluster")?;
    let url: Uri = test_cluster.api_url().parse().context("parse the URL of the API server")?;
    let (host, port) = (url.host().unwrap_or_default(), url.port_u16().unwrap_or(443));
    let cases = [
        ("endpoint", host.to_owned(), port),
        // Nothing listens on this port. It has the same text.
        ("closed", host.to_owned(), 1),
        ("service", cluster_ip.to_string(), 443),
        ("mapped", format!("[::ffff:{cluster_ip}]"), 443),
        ("metadata", "169.254.169.254".to_owned(), 80),
    ];
    try_join_all(cases.map(|(name, host, port)| one_is_refused(&fixture, name, host, port))).await.map(drop)
}

async fn one_is_refused(fixture: &Fixture, name: &str, host: String, port: u16) -> Result<()> {
    let pods = [name.to_owned()];
    serving(fixture, &pods, json!({"app": name})).await?;
    let client = json!({"url": format!("https://{host}:{port}/version")});
    let probe = json!({"name": "probe", "webhook": {"clientConfig": client, "failurePolicy": "Fail"}});
    put(&rules_of(fixture), rule_for(name, json!({"matchLabels": {"app": name}}), json!([probe]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin(name).await?;
    let text = format!("POST https://{host}:{port}/version: its host has no address that rules may lead to");
    until_refused(fixture, &operator, name, &[&text]).await?;
    remove(fixture, name).await?;
    finish_all(fixture, &operator, &pods).await
}

/// The API server itself, at an address that the allow-list of the test cluster contains. Its response is an error
/// whose text names the caller and the path.
async fn responses_are_not_repeated(fixture: Arc<Fixture>) -> Result<()> {
    let test_cluster = fixture.cluster().test_cluster().context("this cluster is no test cluster")?;
    let url = test_cluster.api_url();
    let port = url.rsplit_once(':').map(|(_, port)| port).context("the API server has no port")?;
    let client = json!({
        "url": format!("https://127.0.0.1:{port}/api/v1/secrets"),
        "caBundle": BASE64_STANDARD.encode(test_cluster.ca_pem()),
    });
    let pods = ["web".to_owned()];
    serving(&fixture, &pods, json!({})).await?;
    let probe = json!({"name": "probe", "webhook": {"clientConfig": client, "failurePolicy": "Fail"}});
    put(&rules_of(&fixture), rule_for("web", json!({}), json!([probe]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("web").await?;
    let pod = until_refused(&fixture, &operator, "web", &["it answered 40", "(application/json, "]).await?;
    let rule = rules_of(&fixture).get("web").await.context("read the rule")?;
    let events: Api<Event> = Api::namespaced(fixture.client(), fixture.namespace());
    let events = events.list(&ListParams::default()).await.context("list the events")?;
    let notes: Vec<String> = events.items.into_iter().filter_map(|event| event.note).collect();
    let event = fixture.until_event("web", "WebhookFailing").await?;
    for shown in [told(&pod), format!("{:?}", rule.status), event, notes.join("\n")] {
        let has_response = ["anonymous", "cannot", "Forbidden\""].iter().any(|text| shown.contains(text));
        ensure!(!has_response, "the response is in {shown}");
    }
    remove(&fixture, "web").await?;
    finish_all(&fixture, &operator, &pods).await
}
