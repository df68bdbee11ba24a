//! A task with a registry in memory, and without an API server.

mod ending;
mod fenced;
mod guard;
mod kruise;
mod memory;
mod moved;
mod renewals;
mod steer;
mod takeover;
mod unusable;

use std::sync::Arc;
use std::time::{Duration, Instant};

use podward_api::registry_connection::{RegistryConnection, RegistryLimits};
use podward_kube_util::EventMetrics;
use podward_proto::v1;
use podward_registries::DirectDialer;
use podward_runtime::grpc_client::{BearerToken, Replicas, Trust};
use podward_runtime::telemetry::traces::Spans;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::index::Index;
use crate::members::Tenure;
use crate::model::{BoundPod, tests as model};
use crate::sync::{Limiters, ManagedRegistry};

use memory::Memory;

/// The task of a binding, its registry, and the answers to questions.
struct Fixture {
    task: BindingTask,
    registry: Arc<Memory>,
    access: RegistryAccess,
    binding: Arc<Binding>,
    answers: mpsc::Receiver<v1::AttachAnswer>,
    sender: mpsc::Sender<v1::AttachAnswer>,
}

impl Fixture {
    fn new(registry: Memory, spec: Value) -> Self {
        let registry = Arc::new(registry);
        // Of the kind Consul.
        let connection = RegistryConnection::default();
        let binding = Arc::new(binding(spec));
        let task = BindingTask::new(shared(), binding.key.clone(), CancellationToken::new());
        let limiter = Limiters::default().of("a", RegistryLimits::default());
        let managed = ManagedRegistry::new(registry.clone(), limiter, task.fence.clone(), None);
        let access = RegistryAccess::new(Arc::new(managed), &connection, Arc::from("c"), None);
        let (sender, answers) = mpsc::channel(10);
        Self { task, registry, access, binding, answers, sender }
    }

    /// Has another replica keep the binding.
    fn replace_task(&mut self, shared: Shared) {
        self.task = BindingTask::new(shared, self.binding.key.clone(), CancellationToken::new());
    }

    /// Changes the spec of the binding.
    fn bind(&mut self, spec: Value) {
        let generation = self.binding.generation.map(|number| number + 1);
        let mut binding = binding(spec);
        binding.generation = generation;
        self.binding = Arc::new(binding);
    }

    fn put(&self, pod: BoundPod) {
        self.task.shared.index.put_pod(pod);
    }

    /// Does what is due, after a comparison.
    async fn round(&mut self) {
        (self.task.comparison_due, self.task.removal_due) = (Duration::ZERO, Duration::ZERO);
        self.task.tracked.values_mut().for_each(TrackedPod::retry_now);
        self.task.observe(&self.binding, &self.access);
        self.task.work(&self.binding, &self.access).await;
    }

    async fn rounds(&mut self) {
        for _ in 0..4 {
            self.round().await;
        }
    }

    /// Asks about a pod.
    fn open(&mut self, phase: v1::Phase, pod: &BoundPod) {
        let pod = v1::Pod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            ips: vec![pod.ip.clone()],
            ..v1::Pod::default()
        };
        let request = v1::HandleRequest { phase: phase.into(), pod: Some(pod), ..Default::default() };
        let now = self.task.shared.index.now();
        let mut call = OpenCall::new(1, request, self.sender.clone(), now).unwrap();
        call.until = now + Duration::from_secs(60);
        self.task.calls.push(call);
    }

    /// Asks about a pod, and returns the evidence of the answer after some rounds. An error says why it is not DONE.
    async fn ask(&mut self, phase: v1::Phase, pod: &BoundPod) -> Result<v1::EvidenceLevel, String> {
        self.open(phase, pod);
        self.rounds().await;
        self.task.calls.iter_mut().for_each(|call| call.until = Duration::ZERO);
        self.task.answer(&self.binding, &self.access);
        let response = self.answers.try_recv().unwrap().response.unwrap();
        match response.evidence.as_ref() {
            Some(evidence) => Ok(evidence.level()),
            None => Err(response.message),
        }
    }
}

fn binding(change: Value) -> Binding {
    let mut spec = json!({
        "registry": {"connection": {"kind": "Nacos", "addresses": ["http://a"]}},
        "clientCacheSeconds": 0,
    });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    let mut binding = model::binding(spec);
    binding.generation = Some(1);
    binding
}

/// A pod that is ready, with the address `10.0.0.<number>`.
fn pod(number: u8) -> BoundPod {
    let name = format!("web-{number}");
    BoundPod { ip: format!("10.0.0.{number}"), name: name.clone(), ..model::pod(&name) }
}

fn shared() -> Shared {
    // It may be installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let nowhere = "http://127.0.0.1:1";
    let client = kube::Client::try_from(kube::Config::new(nowhere.parse().unwrap())).unwrap();
    let tenure = Arc::<Tenure>::default();
    tenure.confirm(Instant::now());
    Shared {
        index: Arc::new(Index::new(Duration::from_secs(60))),
        metrics: Arc::default(),
        tenure,
        dialer: Arc::new(DirectDialer),
        limiters: Arc::default(),
        cluster: Arc::from("c"),
        namespace: Arc::from("podward-system"),
        replica: Arc::from("bridge-0"),
        controller: Arc::new(Replicas::new(&["https://127.0.0.1:1".to_owned()], Trust::pem("")).unwrap()),
        token: BearerToken::from_file("/nowhere"),
        spans: Spans::default(),
        events: podward_kube_util::Events::start(client.clone(), "test", "bridge-0", EventMetrics::default()),
        client,
    }
}
