//! The queue worker of `deploy/examples`, with shorter tasks: no task is interrupted, whatever happens to the
//! workers.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use hyper::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys::{BUSY_UNTIL, CONTROL_LABEL, CONTROL_VALUE};
use podward_e2e::{Fixture, Test};
use podward_images::QueueWorkerImage;
use podward_images::workspace_dir;
use podward_support::within;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    drain::and_open,
    objects::{
        APP, LONG, is_of, make, names_of, only_on, real_node, restart, until_rolled_out, until_serving,
    },
};

const WORKERS: usize = 3;
const TASKS: usize = 15;
/// The interval of checks that cannot use a watch.
const POLL: Duration = Duration::from_millis(100);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("tasks_survive_a_rolling_update", tasks_survive_a_rolling_update),
        Test::alone("tasks_survive_a_drain", tasks_survive_a_drain),
    ]
}

/// The state of the queue.
#[derive(Debug, Deserialize)]
struct QueueState {
    waiting: Vec<u64>,
    taken: BTreeMap<u64, String>,
    done: BTreeMap<u64, String>,
    put_back: u64,
}

async fn tasks_survive_a_rolling_update(fixture: Arc<Fixture>) -> Result<()> {
    let before = at_work(&fixture, |_| {}).await?;
    restart(&fixture, "Deployment", "worker").await?;
    until_rolled_out(&fixture, "worker").await?;
    all_are_done(&fixture, &before).await
}

async fn tasks_survive_a_drain(fixture: Arc<Fixture>) -> Result<()> {
    let node = real_node(&fixture).await?;
    let before = at_work(&fixture, |spec| {
        only_on(spec, &node);
        // There is no other node for the replacements.
        spec["tolerations"] = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    })
    .await?;
    let drained = async {
        let selector = format!("--pod-selector={APP}=worker,test={}", fixture.namespace());
        let drained = fixture.kubectl(&["drain", &node, &selector, "--timeout=100s"]).await?.succeeded()?;
        ensure!(drained.said.contains("busy until"), "no pod was busy: {}", drained.said);
        all_are_done(&fixture, &before).await
    };
    and_open(&fixture, &node, drained).await
}

/// Creates everything, adds tasks, and waits until every worker has one. Returns the names of the workers.
async fn at_work(fixture: &Fixture, change: impl Fn(&mut Value)) -> Result<BTreeSet<String>> {
    let file = workspace_dir().join("deploy/examples/queue-worker-rust/worker.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let documents = serde_saphyr::from_multiple::<Value>(&text).context("understand worker.yaml")?;
    for mut object in documents.into_iter().filter(Value::is_object) {
        if object["kind"] == "Deployment" {
            in_a_test(fixture, &mut object["spec"]["template"]);
        }
        if object["metadata"]["name"] == "worker" && object["kind"] == "Deployment" {
            change(&mut object["spec"]["template"]["spec"]);
        }
        make(fixture, object).await?;
    }
    let serves =
        |pods: &[&Pod]| pods.iter().any(|pod| is_of(pod, "queue") && podward_support::pods::is_ready(pod));
    fixture.feed().until_pods_within(LONG, "the queue serves", serves).await?;
    let answers = async {
        while account(fixture).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(LONG, || "the queue to answer by its Service".to_owned(), answers).await?;
    until_serving(fixture, "worker", WORKERS).await?;
    ask(fixture, "POST", &format!("tasks/{TASKS}")).await?;
    let all_busy = |pods: &[&Pod]| {
        let busy = pods.iter().filter(|pod| pod.annotations().contains_key(BUSY_UNTIL));
        busy.filter(|pod| is_of(pod, "worker")).count() == WORKERS
    };
    fixture.feed().until_pods("every worker is at a task", all_busy).await?;
    Ok(names_of(fixture, "worker").into_iter().collect())
}

/// Sets shorter tasks, the image of the tests, and a label that selects the pods of this test. All are opted in.
fn in_a_test(fixture: &Fixture, template: &mut Value) {
    template["metadata"]["labels"][CONTROL_LABEL] = json!(CONTROL_VALUE);
    template["metadata"]["labels"]["test"] = json!(fixture.namespace());
    let container = &mut template["spec"]["containers"][0];
    container["image"] = json!(QueueWorkerImage::default().name);
    container["imagePullPolicy"] = json!("IfNotPresent");
    for variable in container["env"].as_array_mut().into_iter().flatten() {
        match variable["name"].as_str() {
            Some("TASK_SECONDS") => variable["value"] = json!("4"),
            // The worker has to renew it while the task runs.
            Some("BUSY_SECONDS") => variable["value"] = json!("6"),
            _ => {}
        }
    }
}

/// Waits until all tasks are done, and checks the state of the queue. `before` are the workers that are gone.
async fn all_are_done(fixture: &Fixture, before: &BTreeSet<String>) -> Result<()> {
    let gone = |pods: &[&Pod]| pods.iter().all(|pod| !before.contains(&pod.name_any()));
    fixture.feed().until_pods("the workers of before are gone", gone).await?;
    let done = async {
        loop {
            let account = account(fixture).await?;
            if account.waiting.is_empty() && account.taken.is_empty() {
                return Ok(account);
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let account = within(LONG, || "the end of all tasks".to_owned(), done).await?;
    ensure!(account.put_back == 0, "a worker was interrupted: {account:?}");
    ensure!(account.done.len() == TASKS, "{account:?}");
    let by_those_before = account.done.values().filter(|worker| before.contains(*worker)).count();
    ensure!(by_those_before >= WORKERS, "tasks of workers that went are not done: {account:?}");
    ensure!(by_those_before < TASKS, "workers that were to go took all tasks: {account:?}");
    Ok(())
}

async fn account(fixture: &Fixture) -> Result<QueueState> {
    serde_json::from_str(&ask(fixture, "GET", "").await?).context("understand the queue's account")
}

/// Queries the queue through the API server.
async fn ask(fixture: &Fixture, method: &str, path: &str) -> Result<String> {
    let url = format!("/api/v1/namespaces/{}/services/queue:8080/proxy/{path}", fixture.namespace());
    let request = Request::builder().method(method).uri(&url).body(Vec::new())?;
    fixture.client().request_text(request).await.with_context(|| format!("{method} {url}"))
}
