use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use podward_testbed::{Shape, TestCluster, TestClusterBuilder};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn builder(shape: Shape, name: &str) -> TestClusterBuilder {
    TestCluster::builder(shape).name(name)
}

pub(crate) async fn start(builder: TestClusterBuilder) -> TestCluster {
    let since = Instant::now();
    let cluster = builder.start().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    println!("{} ({}) started in {} ms", cluster.id(), cluster.shape(), since.elapsed().as_millis());
    cluster
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Calls `ask` until `seen` accepts the answer. Fails after [`TIMEOUT`].
pub(crate) async fn eventually<T: Debug, F: Future<Output = T>>(
    what: &str,
    ask: impl Fn() -> F,
    seen: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let answer = ask().await;
        if seen(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not after {TIMEOUT:?}, but {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn pod(name: &str, spec: Value) -> Pod {
    let pod = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
    serde_json::from_value(pod).unwrap()
}

/// Returns the status of a condition, if the pod has it.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.as_str())
}
