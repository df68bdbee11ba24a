//! Clients that open a connection for each request.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use podward_testbed::Bed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use crate::scene::{PATIENCE, Scene};

const CLIENTS: usize = 4;
/// How many connections to others show that a pod is not reached any more.
const MANY: usize = 60;

/// Clients of a Service.
pub(crate) struct Clients {
    seen: Arc<Seen>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    /// When the last connection was opened that each pod answered on.
    last: Mutex<HashMap<String, Instant>>,
    answers: AtomicUsize,
}

impl Clients {
    pub(crate) fn start(scene: &Scene, address: SocketAddr) -> Self {
        let seen = Arc::new(Seen::default());
        let task = |_| tokio::spawn(run(scene.bed.clone(), address, seen.clone()));
        Self { tasks: (0..CLIENTS).map(task).collect(), seen }
    }

    pub(crate) fn last_opened_to(&self, pod: &str) -> Instant {
        self.seen.last.lock()[pod]
    }

    /// Waits until a connection that is opened from now on is answered by `pod`.
    pub(crate) async fn until_served_by(&self, pod: &str, since: Instant) {
        let end = Instant::now() + PATIENCE;
        while self.seen.last.lock().get(pod).is_none_or(|last| *last < since) {
            assert!(Instant::now() < end, "no connection reached {pod}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until many more connections are answered.
    pub(crate) async fn until_many_more(&self) {
        let (end, goal) = (Instant::now() + PATIENCE, self.seen.answers.load(Ordering::SeqCst) + MANY);
        while self.seen.answers.load(Ordering::SeqCst) < goal {
            assert!(Instant::now() < end, "the Service answers nobody");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn end(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn run(bed: Arc<Bed>, address: SocketAddr, seen: Arc<Seen>) {
    loop {
        let opened = Instant::now();
        match tokio::time::timeout(Duration::from_secs(2), get(&bed, address)).await {
            Ok(Ok(pod)) => {
                let mut last = seen.last.lock();
                let time = last.entry(pod).or_insert(opened);
                *time = opened.max(*time);
                seen.answers.fetch_add(1, Ordering::SeqCst);
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The name of the pod that answers: the last word of `v1 web-0`.
async fn get(bed: &Bed, address: SocketAddr) -> std::io::Result<String> {
    let mut stream = bed.connect(address).await.map_err(std::io::Error::other)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let pod = answer.split_whitespace().last().unwrap_or_default();
    Ok(pod.to_owned())
}
