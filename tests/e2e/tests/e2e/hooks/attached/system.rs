//! A hook system that attaches, and attaches again when its stream ends.

use std::{ops::Deref, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use podward_e2e::Service;
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
    registry::{Callers, Registry},
    script::Script,
};

/// Before it attaches again.
const PAUSE: Duration = Duration::from_millis(100);
/// Calls that no Podward has made.
const NEVER_CALLED: [u64; 3] = [0, 4_711, u64::MAX];

/// It answers by its script, for as long as it isn't dropped.
pub(super) struct AttachedSystem {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    hook: String,
    script: Arc<Script>,
    /// How often it was accepted.
    accepted: watch::Sender<usize>,
    /// The way up of the present stream.
    up: Mutex<Option<mpsc::Sender<AttachRequest>>>,
}

impl Deref for AttachedSystem {
    type Target = Script;

    fn deref(&self) -> &Script {
        &self.shared.script
    }
}

impl AttachedSystem {
    /// Attaches to the first of `replicas` that takes it.
    pub(super) async fn start(registry: &Registry, replicas: &[Service], hook: &str) -> Result<Self> {
        let shared = Arc::new(Shared {
            hook: hook.to_owned(),
            script: Arc::default(),
            accepted: watch::Sender::default(),
            up: Mutex::default(),
        });
        let task = tokio::spawn(shared.clone().run(registry.callers(), replicas.to_vec()));
        Ok(Self { shared, task })
    }

    /// Waits until it was accepted so often.
    pub(super) async fn until_attached(&self, times: usize) -> Result<()> {
        let mut accepted = self.shared.accepted.subscribe();
        let reached =
            async { accepted.wait_for(|count| *count >= times).await.map(drop).context("it has ended") };
        within(WAIT, || format!("hook system {} to be attached", self.shared.hook), reached).await
    }

    /// Answers what was never asked, and answers without an answer.
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

impl Shared {
    async fn run(self: Arc<Self>, mut callers: Callers, replicas: Vec<Service>) {
        loop {
            for replica in &replicas {
                // It may be away, or somewhere else than before.
                let Ok(mut client) = callers.client_of(replica).await else { continue };
                let (up, requests) = mpsc::channel(16);
                let hello = v1::AttachHello { hook_name: self.hook.clone() };
                // There is room for it.
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
                Some(Down::Call(v1::AttachCall { call_id, request })) => {
                    let (script, up) = (self.script.clone(), up.clone());
                    let call = async move {
                        let Ok(response) = script.handle(request.unwrap_or_default()).await else { return };
                        let answer = v1::AttachAnswer { call_id, response: Some(response) };
                        // Nobody may be there any more to be told.
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
