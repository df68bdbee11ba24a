//! Two namespaces with equal names: rules of one do not affect the other.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use podward_support::{Operator, PodFeed, WAIT, await_condition, pods, within};
use serde_json::json;

use super::objects::{
    at_most, finish_all, names, put, rule, rules_of, serving, until_at_work, until_refused, wants,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("rules_of_another_namespace_do_not_hold", of_another_namespace),
        Test::simulated("rules_of_two_namespaces_count_for_themselves", count_for_themselves),
    ]
}

/// A second namespace.
struct OtherNamespace {
    client: Client,
    name: String,
    feed: PodFeed,
}

impl OtherNamespace {
    async fn make(fixture: &Fixture) -> Result<Self> {
        let (client, name) = (fixture.client(), format!("{}-other", fixture.namespace()));
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let made = Api::all(client.clone()).create(&PostParams::default(), &object).await;
        made.context("make another namespace")?;
        // No pod can be created before.
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name);
        let account = async {
            let is_there = |account: Option<&ServiceAccount>| account.is_some();
            await_condition(accounts, "default", is_there).await.context("watch the service account")
        };
        within(WAIT, || format!("the service account of namespace {name}"), account).await?;
        let feed = PodFeed::start(client.clone(), &name, "").await?;
        Ok(Self { client, name, feed })
    }

    /// Creates pods that are opted in, and waits until they are available.
    async fn serving(&self, fixture: &Fixture, names: &[String]) -> Result<()> {
        let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE});
        for name in names {
            let pod = fixture.pod(name, &labels, &json!({}))?;
            self.feed.api().create(&PostParams::default(), &pod).await.context("make a pod")?;
        }
        for name in names {
            self.feed.until(name, "it is available", pods::is_available).await?;
        }
        Ok(())
    }

    fn operator(&self) -> Operator {
        Operator::new(&self.feed, "updater", "update")
    }

    /// Deletes the namespace, whatever the result of the test.
    async fn after(self, outcome: Result<()>) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client);
        let gone = namespaces.delete(&self.name, &DeleteParams::default()).await;
        outcome.and(gone.map(drop).context("delete the other namespace"))
    }
}

async fn of_another_namespace(fixture: Arc<Fixture>) -> Result<()> {
    let other = OtherNamespace::make(&fixture).await?;
    let outcome = async {
        let names = names("web", 1);
        serving(&fixture, &names, json!({})).await?;
        other.serving(&fixture, &names).await?;
        put(&rules_of(&fixture), rule("web", json!([wants("backed-up", "backup")]))).await?;
        let (ours, theirs) = (fixture.operator("updater", "update"), other.operator());
        ours.begin(&names[0]).await?;
        until_refused(&fixture, &ours, &names[0], &["rule web/backed-up"]).await?;
        theirs.begin(&names[0]).await?;
        theirs.await_operate(&names[0]).await?;
        theirs.finish(&names[0]).await?;
        theirs.await_end(&names[0]).await?;
        until_refused(&fixture, &ours, &names[0], &["rule web/backed-up"]).await?;
        fixture.label(&names[0], &[("backup", Some("yes"))]).await?;
        finish_all(&fixture, &ours, &names).await
    };
    let outcome = outcome.await;
    other.after(outcome).await
}

/// Objects, rules and pods with the same names: one pod at a time in each namespace.
async fn count_for_themselves(fixture: Arc<Fixture>) -> Result<()> {
    let other = OtherNamespace::make(&fixture).await?;
    let outcome = async {
        let names = names("web", 2);
        serving(&fixture, &names, json!({})).await?;
        other.serving(&fixture, &names).await?;
        let (ours, theirs) = (fixture.operator("updater", "update"), other.operator());
        for rules in [rules_of(&fixture), Api::namespaced(fixture.client(), &other.name)] {
            put(&rules, rule("web", json!([at_most("one", 1.into())]))).await?;
        }
        ours.begin(&names[0]).await?;
        until_at_work(&fixture, &ours, 1).await?;
        theirs.begin(&names[1]).await?;
        theirs.await_operate(&names[1]).await?;
        // The state of the other namespace's pods is reported only there.
        ours.begin(&names[1]).await?;
        until_refused(&fixture, &ours, &names[1], &["[max unavailable]=1/2, [current unavailable]=1/2"])
            .await?;
        let at_work = other.feed.get(&names[1]).context("the other pod is gone")?;
        ensure!(!pods::is_available(&at_work), "{}", pods::describe(&at_work));
        theirs.finish(&names[1]).await?;
        theirs.await_end(&names[1]).await?;
        finish_all(&fixture, &ours, &names).await
    };
    let outcome = outcome.await;
    other.after(outcome).await
}
