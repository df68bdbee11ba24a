//! Deletions that the admission of somebody else denies to their requester. Podward tries them in the name of the
//! requester, with the role of the chart.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hyper::{Method, Request};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, PostParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use podward_core::keys;
use podward_e2e::{Fixture, NAMESPACE_NAME, Test};
use podward_support::{Installation, WAIT, pods, within};
use serde_json::json;

use super::objects::{make, until_gone};

/// A user who may delete pods in the namespace of the test.
const USER: &str = "jane";
/// A service account that may delete pods in the namespace of the test.
const ACCOUNT: &str = "bot";
/// The text of the denial.
const DENIAL: &str = "the change freeze lasts until Monday";
/// What the API server says if the right to impersonate is missing.
const NO_IMPERSONATION: &str = "impersonate";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated(
            "a_deletion_that_other_admission_denies_to_the_requester_waits",
            a_deletion_that_other_admission_denies_to_the_requester_waits,
        ),
        Test::simulated(
            "the_lifecycle_controller_impersonates_for_deletions_only",
            the_lifecycle_controller_impersonates_for_deletions_only,
        ),
    ]
}

/// Binds the ClusterRole `edit` to both requesters in the namespace of the test.
async fn allow_to_delete(fixture: &Fixture) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    make(fixture, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}))
        .await?;
    let subjects = json!([
        {"apiGroup": group, "kind": "User", "name": USER},
        {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": fixture.namespace()},
    ]);
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "requesters"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"}, "subjects": subjects,
    });
    make(fixture, binding).await
}

/// Denies the deletes of pods in the namespace of the test to `users`.
async fn deny_deletes(fixture: &Fixture, users: &[&str]) -> Result<()> {
    let (client, namespace, params) = (fixture.client(), fixture.namespace(), PostParams::default());
    let policy = json!({
        "metadata": {"name": namespace},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: namespace}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]},
                ],
            },
            "validations": [
                {"expression": format!("!(request.userInfo.username in {})", json!(users)), "message": DENIAL},
            ],
        },
    });
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    policies.create(&params, &serde_json::from_value(policy)?).await.context("make the policy")?;
    let binding = json!({
        "metadata": {"name": namespace}, "spec": {"policyName": namespace, "validationActions": ["Deny"]},
    });
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
    bindings.create(&params, &serde_json::from_value(binding)?).await.context("make the binding").map(drop)
}

/// Removes the policy.
async fn allow_deletes(fixture: &Fixture) -> Result<()> {
    let (client, name, params) = (fixture.client(), fixture.namespace(), DeleteParams::default());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.delete(name, &params).await.context("remove the binding")?;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client);
    policies.delete(name, &params).await.context("remove the policy").map(drop)
}

/// Returns a client with the rights of the lifecycle-controller.
async fn lifecycle_controller(fixture: &Fixture) -> Result<Client> {
    let accounts: Api<ServiceAccount> = Api::namespaced(fixture.client(), Installation::NAMESPACE);
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let answer =
        accounts.create_token_request("lifecycle-controller", &PostParams::default(), &request).await?;
    let token = answer.status.context("an answer without a token")?.token;
    let test_cluster = fixture.cluster().test_cluster().context("this needs a test cluster")?;
    let kubeconfig = Kubeconfig::read_from(test_cluster.kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.auth_info = serde_json::from_value(json!({"token": token}))?;
    Ok(Client::try_from(config)?)
}

/// The label `to-delete` is an update for the policy, and the delete that follows is Podward's, which the policy allows.
async fn a_deletion_that_other_admission_denies_to_the_requester_waits(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    allow_to_delete(&fixture).await?;
    let account = format!("system:serviceaccount:{}:{ACCOUNT}", fixture.namespace());
    let requesters = [("of-user", USER), ("of-account", &account)];
    fixture.in_service(["of-user", "of-account"]).await?;
    deny_deletes(&fixture, &requesters.map(|(_, user)| user)).await?;
    within(WAIT, || "the policy to be in effect".to_owned(), async {
        loop {
            let delete = ["delete", "pod", "of-user", "--dry-run=server", "--as", USER];
            let answer = fixture.kubectl(&delete).await?;
            if answer.said.contains(DENIAL) {
                return Ok(());
            }
        }
    })
    .await?;
    // Without the dry run, the pods would be deleted.
    let own: Api<Pod> = Api::namespaced(lifecycle_controller(&fixture).await?, fixture.namespace());
    own.delete("of-user", &DeleteParams { dry_run: true, ..DeleteParams::default() })
        .await
        .context("the policy denies the delete to Podward too")?;

    let label = format!("{}=1", keys::TO_DELETE);
    for (pod, user) in requesters {
        fixture.kubectl(&["label", "pod", pod, &label, "--as", user]).await?.succeeded()?;
    }
    for (name, user) in requesters {
        let is_told = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let mut texts = conditions
                .filter(|condition| condition.type_ == keys::LIFECYCLE_CONDITION)
                .filter_map(|condition| condition.message.as_deref());
            texts
                .any(|text| text.contains(DENIAL) && text.contains(&format!("denies the deletion to {user}")))
        };
        let pod = fixture.feed().until(name, "the condition names the denial", is_told).await?;
        ensure!(pods::is_available(&pod) && pods::is_ready(&pod), "{}", pods::describe(&pod));
    }
    allow_deletes(&fixture).await?;
    for (name, _) in requesters {
        until_gone(&fixture, name).await?;
    }
    Ok(())
}

/// A request with the rights of the lifecycle-controller in the name of somebody else.
struct Attempt<'a> {
    method: Method,
    /// The path below the namespace of the test, with its query.
    path: &'a str,
    /// The user, and the headers beside it.
    as_user: (&'a str, &'a [(&'a str, &'a str)]),
    /// An empty text is no body.
    body: String,
}

impl Attempt<'_> {
    /// Returns the message of the error response. It is empty if the request succeeds.
    async fn message(&self, client: &Client, namespace: &str) -> Result<String> {
        let url = format!("/api/v1/namespaces/{namespace}/{}", self.path);
        let mut request =
            Request::builder().method(&self.method).uri(url).header("impersonate-user", self.as_user.0);
        for (name, value) in self.as_user.1 {
            request = request.header(*name, *value);
        }
        let request = request
            .header("content-type", "application/json")
            .body(Body::from(self.body.clone().into_bytes()))?;
        let response =
            client.send(request).await.with_context(|| format!("{} {}", self.method, self.path))?;
        let is_success = response.status().is_success();
        let body = response.into_body().collect_bytes().await.context("read the answer")?;
        Ok(if is_success { String::new() } else { String::from_utf8_lossy(&body).into_owned() })
    }
}

/// The authorizer of the API server decides on the role that the chart renders.
async fn the_lifecycle_controller_impersonates_for_deletions_only(fixture: Arc<Fixture>) -> Result<()> {
    allow_to_delete(&fixture).await?;
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let client = lifecycle_controller(&fixture).await?;
    let account = format!("system:serviceaccount:{}:{ACCOUNT}", fixture.namespace());
    let groups = [("impersonate-group", "system:authenticated"), ("impersonate-group", "devs")];
    let nobody: &[(&str, &str)] = &[];
    let (jane, bot) = ((USER, &groups[..]), (account.as_str(), nobody));
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}).to_string();
    let pod = serde_json::to_string(&fixture.pod("new", &json!({}), &json!({}))?)?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}).to_string();

    for as_user in [jane, bot] {
        let delete =
            Attempt { method: Method::DELETE, path: "pods/web?dryRun=All", as_user, body: String::new() };
        let path = "pods/web/eviction?dryRun=All";
        let evict = Attempt { method: Method::POST, path, as_user, body: eviction.clone() };
        for attempt in [delete, evict] {
            let message = attempt.message(&client, fixture.namespace()).await?;
            ensure!(message.is_empty(), "{} {} as {}: {message}", attempt.method, attempt.path, as_user.0);
        }
        // `jane` and `bot` may do all this themselves.
        for (method, path, body) in [
            (Method::GET, "pods/web", ""),
            (Method::GET, "secrets", ""),
            (Method::POST, "pods?dryRun=All", pod.as_str()),
            (Method::POST, "configmaps?dryRun=All", map.as_str()),
            (Method::POST, "serviceaccounts/bot/token", "{}"),
            (Method::DELETE, "pods?dryRun=All", ""),
            (Method::DELETE, "configmaps/kube-root-ca.crt?dryRun=All", ""),
        ] {
            let attempt = Attempt { method, path, as_user, body: body.to_owned() };
            let message = attempt.message(&client, fixture.namespace()).await?;
            let what = format!("{} {} as {}", attempt.method, attempt.path, as_user.0);
            ensure!(message.contains("403") && message.contains(NO_IMPERSONATION), "{what}: {message:?}");
        }
    }
    // Others cannot be impersonated, not for deletes either.
    let masters = [("impersonate-group", "system:masters")];
    let extra = [("impersonate-extra-scopes", "all")];
    let uid = [("impersonate-uid", "1")];
    for as_user in [
        ("system:node:node-0", nobody),
        (USER, &masters[..]),
        (USER, &extra[..]),
        (USER, &uid[..]),
        (account.as_str(), &groups[..]),
    ] {
        let path = "pods/web?dryRun=All";
        let attempt = Attempt { method: Method::DELETE, path, as_user, body: String::new() };
        let message = attempt.message(&client, fixture.namespace()).await?;
        ensure!(message.contains("403") && message.contains(NO_IMPERSONATION), "{as_user:?}: {message:?}");
    }
    Ok(())
}
