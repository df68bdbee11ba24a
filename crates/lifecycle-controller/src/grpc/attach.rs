//! `HookRegistry.Attach`: hook systems that connect to Podward.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use podward_proto::v1;
use podward_proto::v1::attach_request::Message;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tonic::{Request, Status, Streaming};

use super::callers::Callers;
use super::limits::Places;
use super::relay::Relay;

/// How long a client may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);

/// What goes down an attached stream.
pub(super) type Calls = Pin<Box<dyn Stream<Item = Result<v1::AttachResponse, Status>> + Send>>;

/// Where the leader takes attached hook systems.
pub(crate) trait AttachHub: Send + Sync + 'static {
    /// One more stream of `hook`, whose caller may attach it.
    ///
    /// # Errors
    /// What the caller is told: NOT_FOUND, there is no such hook; FAILED_PRECONDITION, its connection is another; RESOURCE_EXHAUSTED,
    /// it has too many streams; UNAVAILABLE, this replica has just ceased to lead.
    fn attach(&self, hook: &str) -> Result<Attachment, Status>;
}

/// One attached stream. Dropping it detaches.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// What goes down, `attached` first. Its end ends the stream.
    pub(crate) calls: mpsc::Receiver<v1::AttachResponse>,
    /// What comes up.
    pub(crate) answers: mpsc::Sender<v1::AttachAnswer>,
}

/// Takes streams, or relays them to the leader.
pub(super) struct Attacher {
    /// There while this replica leads.
    pub(super) hub: watch::Receiver<Option<Arc<dyn AttachHub>>>,
    pub(super) relay: Relay,
    pub(super) places: Places,
}

impl Attacher {
    pub(super) async fn attach(
        &self,
        callers: &Callers,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Calls, Status> {
        let who = callers.known(&request).await?;
        let relayed = callers.relayed(&who, &request)?;
        let place = self.places.take()?;
        let mut incoming = request.into_inner();
        let hello = hello(&mut incoming).await?;
        if relayed.is_none() {
            callers.check_hooks(&who, "create", Some(&hello.hook_name)).await?;
        }
        let hub = self.hub.borrow().clone();
        match (hub, &relayed) {
            (Some(hub), _) => {
                let attachment = hub.attach(&hello.hook_name)?;
                let user = relayed.as_deref().unwrap_or(&who.user);
                tracing::info!(hook = hello.hook_name, user, "a hook system is attached");
                Ok(join(attachment, incoming, place))
            }
            // Whoever relayed it here was mistaken about who leads; a second relay could go round in circles.
            (None, Some(_)) => Err(Status::unavailable("this replica does not lead any more; attach again")),
            (None, None) => {
                let calls = self.relay.attach(hello, incoming, &who.user).await?;
                Ok(calls
                    .map(move |call| {
                        let _ = &place;
                        call
                    })
                    .boxed())
            }
        }
    }
}

async fn hello(incoming: &mut Streaming<v1::AttachRequest>) -> Result<v1::AttachHello, Status> {
    let first = tokio::time::timeout(HELLO, incoming.message()).await.map_err(|_| {
        Status::deadline_exceeded(format!("no message within {HELLO:?}; the first one has to be `hello`"))
    })??;
    match first.and_then(|request| request.message) {
        Some(Message::Hello(hello)) => Ok(hello),
        _ => Err(Status::invalid_argument(
            "the first message has to be `hello`, with the name of a registered hook",
        )),
    }
}

/// Joins the stream with the hub until one of them ends.
fn join(
    attachment: Attachment,
    incoming: Streaming<v1::AttachRequest>,
    place: OwnedSemaphorePermit,
) -> Calls {
    let Attachment { calls, answers } = attachment;
    let (fault, faults) = oneshot::channel();
    tokio::spawn(async move {
        if let Err(status) = pass_answers(incoming, &answers).await {
            // The other half may have ended already.
            let _ = fault.send(status);
        }
        // The client has said its last word: without `answers` the hub lets go of it, which ends `calls`.
        drop(answers);
    });
    let down = Down { calls, faults: Some(faults), _place: place };
    stream::unfold(Some(down), |down| async move {
        let mut down = down?;
        match down.next().await {
            Ok(call) => Some((Ok(call), Some(down))),
            Err(status) => Some((Err(status), None)),
        }
    })
    .boxed()
}

async fn pass_answers(
    mut incoming: Streaming<v1::AttachRequest>,
    answers: &mpsc::Sender<v1::AttachAnswer>,
) -> Result<(), Status> {
    loop {
        let message = tokio::select! {
            message = incoming.message() => message?,
            // The hub, or the other half, has ended.
            () = answers.closed() => return Ok(()),
        };
        match message.map(|request| request.message) {
            Some(Some(Message::Answer(answer))) => {
                if answers.send(answer).await.is_err() {
                    return Ok(());
                }
            }
            Some(_) => return Err(Status::invalid_argument("after `hello`, only `answer` may follow")),
            None => return Ok(()),
        }
    }
}

struct Down {
    calls: mpsc::Receiver<v1::AttachResponse>,
    /// `None` once the client can make no mistake any more.
    faults: Option<oneshot::Receiver<Status>>,
    _place: OwnedSemaphorePermit,
}

impl Down {
    /// Why there are no more calls.
    fn end(&mut self) -> Status {
        // The client's mistake, which ended the hub's side, is the better answer.
        let fault = self.faults.as_mut().and_then(|faults| faults.try_recv().ok());
        fault.unwrap_or_else(|| {
            Status::unavailable(
                "the attachment has ended: the client ended its side, the hook has changed, or this replica does not lead any more; \
                 attach again",
            )
        })
    }

    async fn next(&mut self) -> Result<v1::AttachResponse, Status> {
        loop {
            let fault = async {
                match &mut self.faults {
                    Some(faults) => faults.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                call = self.calls.recv() => return call.ok_or_else(|| self.end()),
                fault = fault => match fault {
                    Ok(status) => return Err(status),
                    Err(_) => self.faults = None,
                },
            }
        }
    }
}
