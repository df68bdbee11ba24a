//! Clients that open a connection for each request.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use podward_testbed::TestCluster;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, TIMEOUT};

const CLIENTS: usize = 4;
/// The number of connections to other pods after which a pod counts as unreachable.
const ENOUGH: usize = 60;

/// Clients of a Service.
pub(crate) struct Clients {
    observed: Arc<Observations>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Observations {
    /// For each pod, when the last connection was opened that the pod answered on.
    last: Mutex<HashMap<String, Instant>>,
    answers: AtomicUsize,
}

impl Clients {
    pub(crate) fn start(fixture: &Fixture, address: SocketAddr) -> Self {
        let observed = Arc::new(Observations::default());
        let task = |_| tokio::spawn(run(fixture.cluster.clone(), address, observed.clone()));
        Self { tasks: (0..CLIENTS).map(task).collect(), observed }
    }

    pub(crate) fn last_opened_to(&self, pod: &str) -> Instant {
        self.observed.last.lock()[pod]
    }

    /// Waits until a connection that is opened from now on is answered by `pod`.
    pub(crate) async fn until_served_by(&self, pod: &str, since: Instant) {
        let end = Instant::now() + TIMEOUT;
        while self.observed.last.lock().get(pod).is_none_or(|last| *last < since) {
            assert!(Instant::now() < end, "no connection reached {pod}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until [`ENOUGH`] more connections are answered.
    pub(crate) async fn until_enough_answers(&self) {
        let (end, goal) = (Instant::now() + TIMEOUT, self.observed.answers.load(Ordering::SeqCst) + ENOUGH);
        while self.observed.answers.load(Ordering::SeqCst) < goal {
            assert!(Instant::now() < end, "the Service answers no requests");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn end(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn run(cluster: Arc<TestCluster>, address: SocketAddr, observed: Arc<Observations>) {
    loop {
        let opened = Instant::now();
        match tokio::time::timeout(Duration::from_secs(2), get(&cluster, address)).await {
            Ok(Ok(pod)) => {
                let mut last = observed.last.lock();
                let time = last.entry(pod).or_insert(opened);
                *time = opened.max(*time);
                observed.answers.fetch_add(1, Ordering::SeqCst);
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Returns the name of the pod that answers: the last word of `v1 web-0`.
async fn get(cluster: &TestCluster, address: SocketAddr) -> std::io::Result<String> {
    let mut stream = cluster.connect(address).await.map_err(std::io::Error::other)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let pod = answer.split_whitespace().last().unwrap_or_default();
    Ok(pod.to_owned())
}
