//! Relays attached streams to the leader.

use std::time::Duration;

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use podward_proto::v1;
use podward_proto::v1::attach_request::Message;
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_runtime::grpc::MAX_MESSAGE_BYTES;
use podward_runtime::grpc_client::{BearerToken, Connect, Trust};
use podward_runtime::tls::{AuthoritySource, CertificateSecret};
use tokio::sync::watch;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use super::args::GrpcArgs;
use super::callers::ON_BEHALF_OF;
use super::hub::AttachResponses;

/// The maximum time until the leader accepts a stream.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Relays streams to the leader.
pub(super) struct Relay {
    /// The address of the leader's gRPC port; `None` if it is not known.
    leader: watch::Receiver<Option<String>>,
    ca: Option<AuthoritySource>,
    server_name: String,
    token: BearerToken,
    /// The last address, and the connection to it.
    channel: Mutex<Option<(String, Channel)>>,
}

impl Relay {
    pub(super) fn new(
        leader: watch::Receiver<Option<String>>,
        args: &GrpcArgs,
        secret: &CertificateSecret,
    ) -> Self {
        Self {
            leader,
            ca: args.relay_ca(secret),
            server_name: args.relay_server_name.clone().unwrap_or_default(),
            token: BearerToken::from_file(&args.peers.token_file),
            channel: Mutex::default(),
        }
    }

    /// Relays the stream of `user` to the leader. The user is already authorized.
    pub(super) async fn attach(
        &self,
        hello: v1::AttachHello,
        requests: Streaming<v1::AttachRequest>,
        user: &str,
    ) -> Result<AttachResponses, Status> {
        let address = self.leader.borrow().clone().ok_or_else(|| {
            Status::unavailable(
                "could not relay to the leader: no replica leads at the moment, or the leader publishes no address \
                 (--advertise); attach again",
            )
        })?;
        let mut client =
            HookRegistryClient::new(self.channel(&address)?).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let first = v1::AttachRequest { message: Some(Message::Hello(hello)) };
        // An error of the stream ends the relayed one.
        let rest = requests
            .take_while(|message| std::future::ready(message.is_ok()))
            .filter_map(|message| async { message.ok() });
        let mut request = Request::new(stream::once(async { first }).chain(rest));
        let metadata = request.metadata_mut();
        metadata.insert(
            "authorization",
            self.token.header().map_err(|error| {
                Status::internal(format!("could not relay to the leader: {}", error.message()))
            })?,
        );
        let user = MetadataValue::try_from(user).map_err(|_| {
            Status::invalid_argument("could not relay to the leader: your user name is not ASCII")
        })?;
        metadata.insert(ON_BEHALF_OF, user);
        let accepted = tokio::time::timeout(ACCEPT_TIMEOUT, client.attach(request)).await.map_err(|_| {
            Status::unavailable(format!(
                "the leader at {address} did not answer within {ACCEPT_TIMEOUT:?}; attach again"
            ))
        })?;
        Ok(accepted.map_err(|status| caller_status(&address, status))?.into_inner().boxed())
    }

    fn channel(&self, address: &str) -> Result<Channel, Status> {
        let mut last = self.channel.lock();
        if let Some((_, channel)) = last.as_ref().filter(|(to, _)| to == address) {
            return Ok(channel.clone());
        }
        let ca = self.ca.clone().ok_or_else(|| {
            Status::unavailable(format!(
                "this replica does not lead and can't relay without --relay-ca; attach to the leader at {address}"
            ))
        })?;
        let unusable = |error| {
            Status::internal(format!(
                "could not relay to the leader: its address {address} is not valid: {error}"
            ))
        };
        let channel = Connect::new(&format!("https://{address}"), Trust::new(ca))
            .and_then(|connect| connect.with_server_name(&self.server_name))
            .and_then(|connect| connect.lazy())
            .map_err(unusable)?;
        *last = Some((address.to_owned(), channel.clone()));
        Ok(channel)
    }
}

/// Returns the leader's error as a status for the caller. A rejection of this replica's credentials is not an error of
/// the caller, so it becomes INTERNAL.
fn caller_status(address: &str, status: Status) -> Status {
    match status.code() {
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => Status::internal(format!(
            "the leader at {address} does not accept this replica: {}; check --token-file and --controller-user",
            status.message()
        )),
        tonic::Code::Unknown | tonic::Code::Unavailable => {
            Status::unavailable(format!("the leader at {address}: {}; attach again", status.message()))
        }
        code => Status::new(code, status.message()),
    }
}
