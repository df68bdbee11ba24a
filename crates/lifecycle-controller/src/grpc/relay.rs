//! Relaying an attached stream to the leader.

use std::time::Duration;

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use podward_proto::v1;
use podward_proto::v1::attach_request::Message;
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_runtime::grpc::MAX_MESSAGE_BYTES;
use podward_runtime::grpc_client::{BearerToken, Connect, Trust};
use tokio::sync::watch;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use super::args::GrpcArgs;
use super::attach::Calls;
use super::callers::ON_BEHALF_OF;

/// How long the leader may take to accept a stream.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way to the leader.
pub(super) struct Relay {
    /// Where it is.
    leader: watch::Receiver<Option<String>>,
    ca: Option<std::path::PathBuf>,
    server_name: String,
    token: BearerToken,
    /// The address that was last connected to, and its connection.
    channel: Mutex<Option<(String, Channel)>>,
}

impl Relay {
    pub(super) fn new(leader: watch::Receiver<Option<String>>, args: &GrpcArgs) -> Self {
        Self {
            leader,
            ca: args.relay_ca(),
            server_name: args.relay_server_name.clone().unwrap_or_default(),
            token: BearerToken::from_file(&args.peers.token_file),
            channel: Mutex::default(),
        }
    }

    /// Attaches to the leader for `user`, who may.
    pub(super) async fn attach(
        &self,
        hello: v1::AttachHello,
        incoming: Streaming<v1::AttachRequest>,
        user: &str,
    ) -> Result<Calls, Status> {
        let address = self.leader.borrow().clone().ok_or_else(|| {
            Status::unavailable("no replica leads at the moment, or the one that does publishes no address (--advertise); attach again")
        })?;
        let mut client =
            HookRegistryClient::new(self.channel(&address)?).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let first = v1::AttachRequest { message: Some(Message::Hello(hello)) };
        // A broken stream ends the relayed one too.
        let rest = incoming
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
            Status::invalid_argument("your user name can't be relayed to the leader: it is not ASCII")
        })?;
        metadata.insert(ON_BEHALF_OF, user);
        let accepted = tokio::time::timeout(PATIENCE, client.attach(request)).await.map_err(|_| {
            Status::unavailable(format!(
                "the leader at {address} did not answer within {PATIENCE:?}; attach again"
            ))
        })?;
        Ok(accepted.map_err(|status| told(&address, status))?.into_inner().boxed())
    }

    fn channel(&self, address: &str) -> Result<Channel, Status> {
        let mut known = self.channel.lock();
        if let Some((_, channel)) = known.as_ref().filter(|(to, _)| to == address) {
            return Ok(channel.clone());
        }
        let ca = self.ca.as_ref().ok_or_else(|| {
            Status::unavailable(format!(
                "this replica does not lead, and can't relay without --relay-ca; attach to the leader, at {address}"
            ))
        })?;
        let unusable =
            |error| Status::internal(format!("the leader publishes an address that can't be used: {error}"));
        let channel = Connect::new(&format!("https://{address}"), Trust::file(ca))
            .and_then(|connect| connect.with_server_name(&self.server_name))
            .and_then(|connect| connect.lazy())
            .map_err(unusable)?;
        *known = Some((address.to_owned(), channel.clone()));
        Ok(channel)
    }
}

/// The leader's answer as the caller's. Only the hub's own words are for the caller; that the leader doesn't know *us* is not their fault.
fn told(address: &str, status: Status) -> Status {
    match status.code() {
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => Status::internal(format!(
            "the leader at {address} does not take this replica's word: {}; see --token-file and --controller-user",
            status.message()
        )),
        tonic::Code::Unknown | tonic::Code::Unavailable => {
            Status::unavailable(format!("the leader at {address}: {}; attach again", status.message()))
        }
        code => Status::new(code, status.message()),
    }
}
