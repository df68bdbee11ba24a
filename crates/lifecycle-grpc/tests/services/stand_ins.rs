//! Stand-ins for the leader's hub of hook systems and for the recorder of deletion requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Client;
use kube::api::Api;
use parking_lot::Mutex;
use podward_core::deletion::request::DeletionRequest;
use podward_hooks::Attachment;
use podward_kube_util::{CachedPod, PodKey};
use podward_lifecycle_grpc::{AttachHub, DeletionRecorder};
use podward_proto::v1;
use tokio::sync::mpsc;
use tonic::Status;

/// A hub that sends one call on each stream and keeps the answers. Hooks of the namespace `flood` get large calls without end.
#[derive(Default)]
pub(crate) struct TestHub {
    pub(crate) answers: Arc<Mutex<Vec<v1::AttachAnswer>>>,
    pub(crate) ended: Arc<tokio::sync::Notify>,
    /// The number of streams.
    pub(crate) open: Arc<AtomicUsize>,
    /// The number of large calls.
    pub(crate) large_calls: Arc<AtomicUsize>,
}

impl AttachHub for TestHub {
    fn attach(&self, hook: &str) -> Result<Attachment, Status> {
        if hook.split('.').next_back() != Some("attached") {
            return Err(Status::not_found(format!("hook {hook:?} is not registered")));
        }
        let (calls, calls_out) = mpsc::channel(4);
        let (answers, mut answers_out) = mpsc::channel(4);
        let message = |message| v1::AttachResponse { message: Some(message) };
        calls.try_send(message(v1::attach_response::Message::Attached(v1::Attached {}))).unwrap();
        let call = v1::AttachCall { call_id: 7, ..v1::AttachCall::default() };
        calls.try_send(message(v1::attach_response::Message::Call(call))).unwrap();
        if hook.starts_with("flood.") {
            let (calls, large_calls) = (calls.clone(), Arc::clone(&self.large_calls));
            tokio::spawn(async move {
                let traceparent = "x".repeat(200 << 10);
                let call = v1::AttachCall { call_id: 8, traceparent, ..v1::AttachCall::default() };
                while calls.send(message(v1::attach_response::Message::Call(call.clone()))).await.is_ok() {
                    large_calls.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let (kept, ended) = (Arc::clone(&self.answers), Arc::clone(&self.ended));
        let open = Arc::clone(&self.open);
        open.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            while let Some(answer) = answers_out.recv().await {
                kept.lock().push(answer);
            }
            drop(calls);
            open.fetch_sub(1, Ordering::SeqCst);
            ended.notify_one();
        });
        Ok(Attachment { calls: calls_out, answers })
    }
}

/// Keeps the deletion requests instead of writing them.
pub(crate) struct TestRecorder {
    pub(crate) client: Client,
    pub(crate) recorded: Mutex<Vec<DeletionRequest>>,
    /// The request for the pod `slow` has arrived.
    pub(crate) arrived: tokio::sync::Notify,
    /// That request may be recorded.
    pub(crate) may_record: tokio::sync::Notify,
    /// That request is in `recorded`.
    pub(crate) stored: tokio::sync::Notify,
}

#[tonic::async_trait]
impl DeletionRecorder for TestRecorder {
    async fn record(
        &self,
        pod: &PodKey,
        _: Option<&str>,
        request: &DeletionRequest,
    ) -> Result<Arc<CachedPod>, Status> {
        let is_slow = pod.name == "slow";
        if is_slow {
            self.arrived.notify_one();
            self.may_record.notified().await;
        }
        self.recorded.lock().push(request.clone());
        if is_slow {
            self.stored.notify_one();
        }
        let pods: Api<CachedPod> = Api::namespaced(self.client.clone(), &pod.namespace);
        Ok(Arc::new(pods.get(&pod.name).await.map_err(|error| Status::not_found(error.to_string()))?))
    }
}
