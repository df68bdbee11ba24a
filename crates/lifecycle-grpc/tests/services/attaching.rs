//! Tests of attached hook systems.

use std::net::SocketAddr;

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
    Message::Hello(v1::AttachHello { hook_name: name.to_owned() })
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
        let call = v1::AttachCall { call_id: 7, request: None };
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
        let forged = refusal(refused(attach(fixture, to, "outsider", hello("attached"), Some("jane")).await));
        assert!(forged.0 == Code::PermissionDenied && forged.1.contains("replicas"), "{forged:?}");
    }
}
