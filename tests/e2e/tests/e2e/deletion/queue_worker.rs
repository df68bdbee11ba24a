//! The queue worker of `deploy/examples`, with shorter tasks: none is interrupted, whatever happens to the workers.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use hyper::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys::{BUSY_UNTIL, CONTROL_LABEL, CONTROL_VALUE};
use podward_e2e::{Scene, Test};
use podward_support::{WorkerImage, within};
use podward_testbed::workspace_dir;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    drain::and_open,
    made::{APP, LONG, is_of, make, names_of, only_on, real_node, restart, until_rolled_out, until_serving},
};

const WORKERS: usize = 3;
const TASKS: usize = 15;
/// How often is looked at what can't be watched.
const POLL: Duration = Duration::from_millis(100);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("tasks_survive_a_rolling_update", tasks_survive_a_rolling_update),
        Test::alone("tasks_survive_a_drain", tasks_survive_a_drain),
    ]
}

/// What the queue tells.
#[derive(Debug, Deserialize)]
struct Account {
    waiting: Vec<u64>,
    taken: BTreeMap<u64, String>,
    done: BTreeMap<u64, String>,
    put_back: u64,
}

async fn tasks_survive_a_rolling_update(scene: Arc<Scene>) -> Result<()> {
    let before = at_work(&scene, |_| {}).await?;
    restart(&scene, "Deployment", "worker").await?;
    until_rolled_out(&scene, "worker").await?;
    all_are_done(&scene, &before).await
}

async fn tasks_survive_a_drain(scene: Arc<Scene>) -> Result<()> {
    let node = real_node(&scene).await?;
    let before = at_work(&scene, |spec| {
        only_on(spec, &node);
        // There is no other node for those that take over.
        spec["tolerations"] = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    })
    .await?;
    let drained = async {
        let selector = format!("--pod-selector={APP}=worker,test={}", scene.namespace());
        let drained = scene.kubectl(&["drain", &node, &selector, "--timeout=100s"]).await?.succeeded()?;
        ensure!(drained.said.contains("busy until"), "nobody was busy: {}", drained.said);
        all_are_done(&scene, &before).await
    };
    and_open(&scene, &node, drained).await
}

/// Makes everything, and tasks, and waits until every worker is at one. Gives the workers' names.
async fn at_work(scene: &Scene, change: impl Fn(&mut Value)) -> Result<BTreeSet<String>> {
    let file = workspace_dir().join("deploy/examples/queue-worker-rust/worker.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let documents = serde_saphyr::from_multiple::<Value>(&text).context("understand worker.yaml")?;
    for mut object in documents.into_iter().filter(Value::is_object) {
        if object["kind"] == "Deployment" {
            in_a_test(scene, &mut object["spec"]["template"]);
        }
        if object["metadata"]["name"] == "worker" && object["kind"] == "Deployment" {
            change(&mut object["spec"]["template"]["spec"]);
        }
        make(scene, object).await?;
    }
    let serves =
        |pods: &[&Pod]| pods.iter().any(|pod| is_of(pod, "queue") && podward_support::pods::is_ready(pod));
    scene.feed().until_pods_within(LONG, "the queue serves", serves).await?;
    let answers = async {
        while account(scene).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(LONG, || "the queue to answer by its Service".to_owned(), answers).await?;
    until_serving(scene, "worker", WORKERS).await?;
    ask(scene, "POST", &format!("tasks/{TASKS}")).await?;
    let all_busy = |pods: &[&Pod]| {
        let busy = pods.iter().filter(|pod| pod.annotations().contains_key(BUSY_UNTIL));
        busy.filter(|pod| is_of(pod, "worker")).count() == WORKERS
    };
    scene.feed().until_pods("every worker is at a task", all_busy).await?;
    Ok(names_of(scene, "worker").into_iter().collect())
}

/// Shorter tasks, the image of the tests, and a label by which the pods of this test are told. All have opted in, as all pods of a test.
fn in_a_test(scene: &Scene, template: &mut Value) {
    template["metadata"]["labels"][CONTROL_LABEL] = json!(CONTROL_VALUE);
    template["metadata"]["labels"]["test"] = json!(scene.namespace());
    let container = &mut template["spec"]["containers"][0];
    container["image"] = json!(WorkerImage::default().name);
    container["imagePullPolicy"] = json!("IfNotPresent");
    for variable in container["env"].as_array_mut().into_iter().flatten() {
        match variable["name"].as_str() {
            Some("TASK_SECONDS") => variable["value"] = json!("4"),
            // So that it has to be said again while the task goes on.
            Some("BUSY_SECONDS") => variable["value"] = json!("6"),
            _ => {}
        }
    }
}

/// Waits until all tasks are done, and holds the queue's account against what is promised. `before` are the workers that are gone.
async fn all_are_done(scene: &Scene, before: &BTreeSet<String>) -> Result<()> {
    let gone = |pods: &[&Pod]| pods.iter().all(|pod| !before.contains(&pod.name_any()));
    scene.feed().until_pods("the workers of before are gone", gone).await?;
    let done = async {
        loop {
            let account = account(scene).await?;
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

async fn account(scene: &Scene) -> Result<Account> {
    serde_json::from_str(&ask(scene, "GET", "").await?).context("understand the queue's account")
}

/// Asks the queue by way of the API server.
async fn ask(scene: &Scene, method: &str, path: &str) -> Result<String> {
    let url = format!("/api/v1/namespaces/{}/services/queue:8080/proxy/{path}", scene.namespace());
    let request = Request::builder().method(method).uri(&url).body(Vec::new())?;
    scene.client().request_text(request).await.with_context(|| format!("{method} {url}"))
}
