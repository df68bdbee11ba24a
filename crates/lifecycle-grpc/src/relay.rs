//! Relays attached streams to the leader.

use std::sync::Arc;
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

/// The maximum number of streams on one connection to the leader. A connection has 250 at most, and a call beyond them
/// waits until another one ends.
const MAX_STREAMS_OF_CONNECTION: usize = 200;

/// Relays streams to the leader.
pub(super) struct Relay {
    /// The address of the leader's gRPC port; `None` if it is not known.
    leader: watch::Receiver<Option<String>>,
    ca: Option<AuthoritySource>,
    server_name: String,
    token: BearerToken,
    /// The connections to the last address.
    connections: Mutex<LeaderConnections>,
}

/// The connections to one address.
#[derive(Default)]
struct LeaderConnections {
    address: String,
    connections: Vec<RelayConnection>,
}

/// A connection with its streams. Each clone counts as one, together with the original.
#[derive(Clone)]
struct RelayConnection {
    channel: Channel,
    streams: Arc<()>,
}

impl LeaderConnections {
    /// Returns the first connection to `address` that has room for another stream, or a new one from `connect`. The
    /// stream keeps it until its end.
    fn with_room<E>(
        &mut self,
        address: &str,
        connect: impl FnOnce() -> Result<Channel, E>,
    ) -> Result<RelayConnection, E> {
        if self.address != address {
            *self = Self { address: address.to_owned(), connections: Vec::new() };
        }
        let free = self.connections.iter().find(|known| known.streams() < MAX_STREAMS_OF_CONNECTION);
        if let Some(connection) = free {
            return Ok(connection.clone());
        }
        let connection = RelayConnection { channel: connect()?, streams: Arc::new(()) };
        self.connections.push(connection.clone());
        Ok(connection)
    }
}

impl RelayConnection {
    /// Returns the number of streams that use the connection.
    fn streams(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
    }
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
            connections: Mutex::default(),
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
        let connection = self.connection(&address)?;
        let mut client =
            HookRegistryClient::new(connection.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
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
        let responses = accepted.map_err(|status| caller_status(&address, status))?.into_inner();
        let counted = responses.map(move |response| {
            let _ = &connection;
            response
        });
        Ok(counted.boxed())
    }

    /// Returns a connection to `address` with room for another stream.
    fn connection(&self, address: &str) -> Result<RelayConnection, Status> {
        self.connections.lock().with_room(address, || self.connect(address))
    }

    fn connect(&self, address: &str) -> Result<Channel, Status> {
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
        Connect::new(&format!("https://{address}"), Trust::new(ca))
            .and_then(|connect| connect.with_server_name(&self.server_name))
            .and_then(|connect| connect.lazy())
            .map_err(unusable)
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test]
    async fn streams_beyond_those_of_one_connection_use_another_one() {
        let mut connections = LeaderConnections::default();
        let connect = || Ok::<_, Infallible>(Endpoint::from_static("http://127.0.0.1:1").connect_lazy());
        let mut held: Vec<_> = (0..450).map(|_| connections.with_room("a:1", connect).unwrap()).collect();
        let streams = |connections: &LeaderConnections| -> Vec<usize> {
            connections.connections.iter().map(RelayConnection::streams).collect()
        };
        assert_eq!(streams(&connections), [200, 200, 50]);
        // A place on the first connection becomes free.
        drop(held.remove(0));
        held.push(connections.with_room("a:1", connect).unwrap());
        assert_eq!(streams(&connections), [200, 200, 50]);
        // Another replica leads.
        let _stream = connections.with_room("b:1", connect).unwrap();
        assert_eq!(streams(&connections), [1]);
    }
}
