//! A hook system that attaches, and attaches again when its stream ends.

use std::{ops::Deref, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use podward_e2e::ServiceInstance;
use podward_proto::v1::{
    self, AttachRequest, attach_request::Message as Up, attach_response::Message as Down,
};
use podward_support::{WAIT, within};
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::{JoinHandle, JoinSet},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::super::{
    registry::{Registry, RegistryClients},
    script::HookScript,
};

/// The delay before it attaches again.
const PAUSE: Duration = Duration::from_millis(100);
/// Ids of calls that Podward has not made.
const NEVER_CALLED: [u64; 3] = [0, 4_711, u64::MAX];

/// A hook system that answers with its script until it is dropped.
pub(super) struct AttachedSystem {
    shared: Arc<AttachedState>,
    task: JoinHandle<()>,
}

struct AttachedState {
    hook: String,
    script: Arc<HookScript>,
    /// The number of times it was accepted.
    accepted: watch::Sender<usize>,
    /// The sender of the current stream.
    up: Mutex<Option<mpsc::Sender<AttachRequest>>>,
}

impl Deref for AttachedSystem {
    type Target = HookScript;

    fn deref(&self) -> &HookScript {
        &self.shared.script
    }
}

impl AttachedSystem {
    /// Attaches to the first of `replicas` that accepts it.
    pub(super) async fn start(registry: &Registry, replicas: &[ServiceInstance], hook: &str) -> Result<Self> {
        let shared = Arc::new(AttachedState {
            hook: hook.to_owned(),
            script: Arc::default(),
            accepted: watch::Sender::default(),
            up: Mutex::default(),
        });
        let task = tokio::spawn(shared.clone().run(registry.callers(), replicas.to_vec()));
        Ok(Self { shared, task })
    }

    /// Waits until it was accepted this number of times.
    pub(super) async fn until_attached(&self, times: usize) -> Result<()> {
        let mut accepted = self.shared.accepted.subscribe();
        let reached =
            async { accepted.wait_for(|count| *count >= times).await.map(drop).context("it has ended") };
        within(WAIT, || format!("hook system {} to be attached", self.shared.hook), reached).await
    }

    /// Answers calls that were not made, and sends answers without content.
    pub(super) async fn babble(&self) -> Result<()> {
        let up = self.shared.up.lock().await.clone().context("it is not attached")?;
        for call_id in NEVER_CALLED {
            let done = v1::HandleResponse { outcome: v1::Outcome::Done.into(), ..Default::default() };
            for response in [Some(done), None] {
                let answer = v1::AttachAnswer { call_id, response };
                up.send(AttachRequest { message: Some(Up::Answer(answer)) })
                    .await
                    .context("the stream ended")?;
            }
        }
        Ok(())
    }
}

impl Drop for AttachedSystem {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl AttachedState {
    async fn run(self: Arc<Self>, mut callers: RegistryClients, replicas: Vec<ServiceInstance>) {
        loop {
            for replica in &replicas {
                // The replica may be down, or at another address than before.
                let Ok(mut client) = callers.client_of(replica).await else { continue };
                let (up, requests) = mpsc::channel(16);
                let hello = v1::AttachHello { hook_name: self.hook.clone(), namespace: String::new() };
                // The channel has room for it.
                let _ = up.try_send(AttachRequest { message: Some(Up::Hello(hello)) });
                if let Ok(down) = client.attach(ReceiverStream::new(requests)).await {
                    *self.up.lock().await = Some(up.clone());
                    self.follow(down.into_inner(), up).await;
                    *self.up.lock().await = None;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Answers until the stream ends.
    async fn follow(&self, mut down: Streaming<v1::AttachResponse>, up: mpsc::Sender<AttachRequest>) {
        let mut calls: JoinSet<()> = JoinSet::new();
        let mut running = std::collections::HashMap::new();
        while let Ok(Some(message)) = down.message().await {
            match message.message {
                Some(Down::Attached(_)) => self.accepted.send_modify(|count| *count += 1),
                Some(Down::Call(v1::AttachCall { call_id, request, .. })) => {
                    let (script, up) = (self.script.clone(), up.clone());
                    let call = async move {
                        let Ok(response) = script.handle(request.unwrap_or_default()).await else { return };
                        let answer = v1::AttachAnswer { call_id, response: Some(response) };
                        // The receiver may be gone.
                        let _ = up.send(AttachRequest { message: Some(Up::Answer(answer)) }).await;
                    };
                    running.insert(call_id, calls.spawn(call));
                }
                Some(Down::Cancelled(v1::AttachCallCancelled { call_id })) => {
                    if let Some(call) = running.remove(&call_id) {
                        call.abort();
                    }
                }
                None => {}
            }
        }
    }
}
