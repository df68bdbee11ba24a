//! `HookRegistry.Attach`: hook systems that connect to Podward.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use podward_api::HookName;
use podward_hooks::Attachment;
use podward_proto::v1;
use podward_proto::v1::attach_request::Message;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::{Request, Status, Streaming};

use super::callers::Callers;
use super::hub::{AttachHub, AttachResponses};
use super::relay::Relay;
use super::revocation::until_revoked;
use super::status::hook_name;
use super::stream_limit::{CountedStream, StreamLimit};

/// The maximum time until the first message of a client.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts streams on the leader, and relays them to the leader on other replicas.
pub(super) struct Attacher {
    /// `Some` while this replica leads.
    pub(super) hub: watch::Receiver<Option<Arc<dyn AttachHub>>>,
    pub(super) relay: Relay,
    /// All streams.
    pub(super) limit: StreamLimit,
    /// The streams of hooks that are limited to a namespace, by namespace.
    pub(super) of_namespaces: StreamLimit,
    /// The streams whose caller is not authorized yet, because it has not named its hook.
    pub(super) waiting: StreamLimit,
    /// The time after which the right of a caller is checked again.
    pub(super) recheck_interval: Duration,
}

impl Attacher {
    pub(super) async fn attach(
        &self,
        callers: &Callers,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<AttachResponses, Status> {
        let caller = callers.authenticate(&request).await?;
        let relayed_user = callers.relayed_user(&caller, &request)?;
        let mut requests = request.into_inner();
        let (hello, name) = match relayed_user {
            // The other replica has received this message already, and has authorized the user.
            Some(_) => receive_hello(&mut requests).await?,
            None => {
                let _waiting = self.waiting.acquire(Some(&caller.user))?;
                let (hello, name) = receive_hello(&mut requests).await?;
                // An attached hook system answers in the name of the hook, as does one whose endpoint is registered.
                callers.check_hook(&caller, "update", &name).await?;
                (hello, name)
            }
        };
        // Not before: a caller without rights must not use up the streams of others.
        let of_namespace = name.namespace().map(|namespace| self.of_namespaces.acquire(Some(namespace)));
        let counted = (of_namespace.transpose()?, self.limit.acquire(None)?);
        let hub = self.hub.borrow().clone();
        let responses = match (hub, &relayed_user) {
            (Some(hub), _) => {
                let name = name.object_name();
                let attachment = hub.attach(&name)?;
                let user = relayed_user.as_deref().unwrap_or(&caller.user);
                tracing::info!(hook = name, user, "a hook system is attached");
                serve(attachment, requests, counted)
            }
            // A second relay could form a loop.
            (None, Some(_)) => {
                return Err(Status::unavailable("this replica does not lead any more; attach again"));
            }
            (None, None) => {
                let responses = self.relay.attach(hello, requests, &caller.user).await?;
                let counted = responses.map(move |response| {
                    let _ = &counted;
                    response
                });
                counted.boxed()
            }
        };
        if relayed_user.is_some() {
            // The other replica checks the user of the stream, and ends it.
            return Ok(responses);
        }
        let callers = callers.clone();
        let check = move || {
            let (callers, caller, name) = (callers.clone(), Arc::clone(&caller), name.clone());
            async move { callers.check_hook(&caller, "update", &name).await }
        };
        Ok(until_revoked(responses, self.recheck_interval, check))
    }
}

/// Returns the first message, and the hook that it names.
async fn receive_hello(
    requests: &mut Streaming<v1::AttachRequest>,
) -> Result<(v1::AttachHello, HookName), Status> {
    let first = tokio::time::timeout(HELLO_TIMEOUT, requests.message()).await.map_err(|_| {
        Status::deadline_exceeded(format!(
            "no message arrived within {HELLO_TIMEOUT:?}; send `hello` as the first message"
        ))
    })??;
    match first.and_then(|request| request.message) {
        Some(Message::Hello(hello)) => {
            let name = hook_name(&hello.namespace, &hello.hook_name)?;
            Ok((hello, name))
        }
        _ => Err(Status::invalid_argument(
            "the first message must be `hello`, with the name of a registered hook",
        )),
    }
}

/// Connects the stream with `attachment` until one of them ends.
fn serve(
    attachment: Attachment,
    requests: Streaming<v1::AttachRequest>,
    counted: (Option<CountedStream>, CountedStream),
) -> AttachResponses {
    let Attachment { calls, answers } = attachment;
    let (error_sender, error) = oneshot::channel();
    tokio::spawn(async move {
        if let Err(status) = forward_answers(requests, &answers).await {
            // The receiver is gone if the responses have ended.
            let _ = error_sender.send(status);
        }
        // No more answers arrive. Without `answers` the hub ends the attachment, and with it `calls`.
        drop(answers);
    });
    let responses = AttachedCalls { calls, request_error: Some(error), _counted: counted };
    stream::unfold(Some(responses), |responses| async move {
        let mut responses = responses?;
        match responses.next().await {
            Ok(response) => Some((Ok(response), Some(responses))),
            Err(status) => Some((Err(status), None)),
        }
    })
    .boxed()
}

/// Forwards the answers of the client to the hub until one of them ends.
///
/// # Errors
/// When the stream breaks, or INVALID_ARGUMENT if the client sends `hello` again.
async fn forward_answers(
    mut requests: Streaming<v1::AttachRequest>,
    answers: &mpsc::Sender<v1::AttachAnswer>,
) -> Result<(), Status> {
    loop {
        let message = tokio::select! {
            message = requests.message() => message?,
            () = answers.closed() => return Ok(()),
        };
        match message.map(|request| request.message) {
            Some(Some(Message::Answer(answer))) => {
                if answers.send(answer).await.is_err() {
                    return Ok(());
                }
            }
            // Of a later version. This replica, or the one that has relayed it, does not know it.
            Some(None) => {}
            Some(_) => return Err(Status::invalid_argument("after `hello`, every message must be `answer`")),
            None => return Ok(()),
        }
    }
}

/// The calls to an attached hook system, and the reason why they end.
struct AttachedCalls {
    calls: mpsc::Receiver<v1::AttachResponse>,
    /// The error of the request stream. `None` after that stream has ended without one.
    request_error: Option<oneshot::Receiver<Status>>,
    _counted: (Option<CountedStream>, CountedStream),
}

impl AttachedCalls {
    /// Returns the reason why there are no more calls.
    fn end_status(&mut self) -> Status {
        // An error of the request stream also ends the calls, and is the more precise reason.
        let error = self.request_error.as_mut().and_then(|error| error.try_recv().ok());
        error.unwrap_or_else(|| {
            Status::unavailable(
                "the attachment has ended: the client ended its requests, the hook was changed, or this replica does \
                 not lead any more; attach again",
            )
        })
    }

    async fn next(&mut self) -> Result<v1::AttachResponse, Status> {
        loop {
            let request_error = async {
                match &mut self.request_error {
                    Some(error) => error.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                call = self.calls.recv() => return call.ok_or_else(|| self.end_status()),
                error = request_error => match error {
                    Ok(status) => return Err(status),
                    Err(_) => self.request_error = None,
                },
            }
        }
    }
}
