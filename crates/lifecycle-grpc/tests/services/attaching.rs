//! Tests of attached hook systems.

use std::net::SocketAddr;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use podward_proto::v1;
use podward_proto::v1::attach_request::Message;
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};

use super::fixture::{Fixture, refusal, within};

struct Attached {
    up: mpsc::Sender<v1::AttachRequest>,
    down: Streaming<v1::AttachResponse>,
}

fn hello(name: &str) -> Message {
    Message::Hello(v1::AttachHello { hook_name: name.to_owned(), namespace: String::new() })
}

fn answer(call_id: u64) -> Message {
    Message::Answer(v1::AttachAnswer { call_id, response: Some(v1::HandleResponse::default()) })
}

async fn attach(
    fixture: &Fixture,
    to: SocketAddr,
    account: &str,
    first: Message,
    on_behalf_of: Option<&'static str>,
) -> Result<Attached, Status> {
    let mut client = HookRegistryClient::new(fixture.channel(to, fixture.token("shop", account, &[]).await));
    let (up, requests) = mpsc::channel(4);
    up.send(v1::AttachRequest { message: Some(first) }).await.unwrap();
    let mut request = Request::new(ReceiverStream::new(requests));
    if let Some(user) = on_behalf_of {
        request.metadata_mut().insert("podward-on-behalf-of", user.parse().unwrap());
    }
    let down = within(client.attach(request)).await?.into_inner();
    Ok(Attached { up, down })
}

impl Attached {
    async fn next(&mut self) -> Result<v1::attach_response::Message, Status> {
        Ok(within(self.down.message()).await?.unwrap().message.unwrap())
    }

    async fn send(&self, message: Message) {
        self.up.send(v1::AttachRequest { message: Some(message) }).await.unwrap();
    }
}

pub(crate) async fn a_replica_that_does_not_lead_relays(fixture: &Fixture) {
    for to in [fixture.leader, fixture.other] {
        let mut attached = attach(fixture, to, "author", hello("attached"), None).await.unwrap();
        assert_eq!(attached.next().await.unwrap(), v1::attach_response::Message::Attached(v1::Attached {}));
        let call = v1::AttachCall { call_id: 7, ..v1::AttachCall::default() };
        assert_eq!(attached.next().await.unwrap(), v1::attach_response::Message::Call(call));
        attached.send(answer(7)).await;
        within(async {
            while fixture.hub.answers.lock().pop().is_none() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        // The hub notices that the client has disconnected.
        drop(attached);
        within(fixture.hub.ended.notified()).await;

        let mut invalid = attach(fixture, to, "author", hello("attached"), None).await.unwrap();
        invalid.send(hello("attached")).await;
        let code = loop {
            match invalid.next().await {
                Ok(_) => {}
                refused => break refusal(refused).0,
            }
        };
        assert_eq!(code, Code::InvalidArgument);
        within(fixture.hub.ended.notified()).await;

        let refused = |attached: Result<Attached, Status>| attached.map(|_| ());
        let unknown = refusal(refused(attach(fixture, to, "author", hello("unknown"), None).await));
        assert!(unknown.0 == Code::NotFound && unknown.1.contains("not registered"), "{unknown:?}");
        let first = refusal(refused(attach(fixture, to, "author", answer(1), None).await));
        assert!(first.0 == Code::InvalidArgument && first.1.contains("hello"), "{first:?}");
        let outsider = refusal(refused(attach(fixture, to, "outsider", hello("attached"), None).await));
        assert_eq!(outsider.0, Code::PermissionDenied);
        // A team attaches as the hooks of its namespace.
        let of_team = |namespace: &str| {
            Message::Hello(v1::AttachHello {
                hook_name: "attached".to_owned(),
                namespace: namespace.to_owned(),
            })
        };
        drop(attach(fixture, to, "team", of_team("shop"), None).await.unwrap());
        within(fixture.hub.ended.notified()).await;
        for namespace in ["", "bank"] {
            let team = refusal(refused(attach(fixture, to, "team", of_team(namespace), None).await));
            assert_eq!(team.0, Code::PermissionDenied, "{team:?}");
        }
        // The attack: to answer in the name of a hook that belongs to somebody else.
        let creator = refusal(refused(attach(fixture, to, "creator", hello("attached"), None).await));
        assert!(creator.0 == Code::PermissionDenied && creator.1.contains("may not update"), "{creator:?}");
        let forged = refusal(refused(attach(fixture, to, "outsider", hello("attached"), Some("jane")).await));
        assert!(forged.0 == Code::PermissionDenied && forged.1.contains("replicas"), "{forged:?}");
    }
}

/// The attack: a user without rights opens streams and sends nothing, to use up the streams of others.
pub(crate) async fn silent_streams_of_a_user_without_rights(fixture: &Fixture) {
    // More than the maximum for one user, which is 64.
    const COUNT: usize = 80;
    let channel = fixture.channel(fixture.leader, fixture.token("shop", "outsider", &[]).await);
    let streams = (0..COUNT).map(|_| {
        let mut client = HookRegistryClient::new(channel.clone());
        let (silent, requests) = mpsc::channel::<v1::AttachRequest>(1);
        tokio::spawn(async move {
            let refused = client.attach(ReceiverStream::new(requests)).await.map(drop);
            drop(silent);
            refused.unwrap_err()
        })
    });
    let mut streams: FuturesUnordered<_> = streams.collect();
    for _ in 64..COUNT {
        let refused = within(streams.next()).await.unwrap().unwrap();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert!(refused.message().contains("have not sent `hello`"), "{refused:?}");
    }
    // The others still wait for their first message, and the streams of hooks are free.
    let mut attached = attach(fixture, fixture.leader, "author", hello("attached"), None).await.unwrap();
    assert_eq!(attached.next().await.unwrap(), v1::attach_response::Message::Attached(v1::Attached {}));
    drop(attached);
    within(fixture.hub.ended.notified()).await;
    while let Some(refused) = within(streams.next()).await {
        assert_eq!(refused.unwrap().code(), Code::DeadlineExceeded);
    }
}
