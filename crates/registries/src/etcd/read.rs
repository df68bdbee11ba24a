//! Reads of many keys, page by page.

use tonic::{Request, Status};

use crate::error::{RegistryError, RegistryErrorKind};
use crate::limits::{BytesRead, Exceeded, LargeRead, MAX_INSTANCE, SMALL};

use super::calls::{CallKind, EtcdServer};
use super::proto::kv_client::KvClient;
use super::proto::{KeyValue, RangeRequest, RangeResponse};
use super::{Etcd, range_end};

/// The pages of a read, each with the number of keys and the bytes of a response: the first one, the further ones, and those
/// of long values. A response may need 32 times its bytes.
const FIRST: (i64, usize) = (200, SMALL);
const FURTHER: [(i64, usize); 3] = [(1_000, 2 << 20), (100, 2 << 20), (7, 2 << 20)];
/// What a key needs besides its bytes.
const OVERHEAD: usize = 64;

impl Etcd {
    /// Reads all keys that begin with `path`, of one revision, from the server's own state, and calls `visit` with each.
    pub(super) async fn read(
        &self,
        address: usize,
        path: &str,
        keys_only: bool,
        doing: &str,
        mut visit: impl FnMut(KeyValue) -> Result<(), Exceeded>,
    ) -> Result<(), RegistryError> {
        let server = self.server(address)?;
        let exceeded = |exceeded: Exceeded| exceeded.error(doing, &server.address);
        let busy = |reason| failed(server, doing, RegistryErrorKind::Unavailable, reason);
        let not_etcd = |what: &str| {
            let reason = format!("the server answers with {what}; check that it is etcd");
            failed(server, doing, RegistryErrorKind::Invalid, reason)
        };
        let read = BytesRead::default();
        let mut further = FURTHER.into_iter();
        let (mut page, mut large): (_, Option<LargeRead>) = (FIRST, None);
        let mut request = RangeRequest { keys_only, ..request(path, FIRST.0) };
        loop {
            let answer = self.page(server, &request, page.1, doing);
            let answer = LargeRead::within(large.as_ref(), answer).await.map_err(busy)??;
            let is_too_large = answer.is_none();
            if let Some(answer) = answer {
                if request.revision == 0 {
                    request.revision = answer.header.map(|header| header.revision).unwrap_or_default();
                }
                let has_more = answer.more && !answer.kvs.is_empty();
                if answer.kvs.len() > usize::try_from(page.0).unwrap_or_default() {
                    return Err(not_etcd("more keys than it was asked for"));
                }
                for pair in answer.kvs {
                    // The next page begins with the smallest key after this one.
                    if pair.key < request.key || !is_below(&pair.key, &request.range_end) {
                        return Err(not_etcd("keys that are not after the last one"));
                    }
                    request.key = [pair.key.as_slice(), &[0]].concat();
                    if pair.value.len() > MAX_INSTANCE {
                        return Err(exceeded(Exceeded::OneInstance));
                    }
                    read.add(pair.key.len() + pair.value.len() + OVERHEAD).map_err(exceeded)?;
                    visit(pair).map_err(exceeded)?;
                }
                if !has_more {
                    return Ok(());
                }
            }
            if is_too_large || large.is_none() {
                page = further.next().ok_or_else(|| exceeded(Exceeded::OneInstance))?;
                request.limit = page.0;
            }
            if large.is_none() {
                large = Some(self.large.begin().await.map_err(busy)?);
            }
        }
    }

    /// Reads one key, from the server's own state. `None` if it does not exist.
    pub(super) async fn read_key(
        &self,
        address: usize,
        key: Vec<u8>,
        doing: &str,
    ) -> Result<Option<KeyValue>, RegistryError> {
        let server = self.server(address)?;
        let exceeded = || Exceeded::OneInstance.error(doing, &server.address);
        let request = RangeRequest { key, serializable: true, ..RangeRequest::default() };
        let answer = self.page(server, &request, SMALL, doing).await?.ok_or_else(exceeded)?;
        let Some(pair) = answer.kvs.into_iter().next() else { return Ok(None) };
        if pair.key != request.key {
            let reason = "the server answers with another key; check that it is etcd".to_owned();
            return Err(failed(server, doing, RegistryErrorKind::Invalid, reason));
        }
        if pair.value.len() > MAX_INSTANCE { Err(exceeded()) } else { Ok(Some(pair)) }
    }

    /// Returns the present revision of the server.
    pub(super) async fn revision(
        &self,
        server: &EtcdServer,
        path: &str,
        doing: &str,
    ) -> Result<i64, RegistryError> {
        let request = RangeRequest { keys_only: true, ..request(path, 1) };
        let answer = self.page(server, &request, SMALL, doing).await?.unwrap_or_default();
        Ok(answer.header.map(|header| header.revision).unwrap_or_default())
    }

    /// Reads a page. `None` if the response is larger than `max`.
    async fn page(
        &self,
        server: &EtcdServer,
        request: &RangeRequest,
        max: usize,
        doing: &str,
    ) -> Result<Option<RangeResponse>, RegistryError> {
        let call = |context: Request<()>| {
            let mut client = KvClient::new(server.channel.clone()).max_decoding_message_size(max);
            let request = context.map(|()| request.clone());
            async move {
                match client.range(request).await {
                    Err(status) if is_too_large(&status) => Ok(tonic::Response::new(None)),
                    answer => Ok(answer?.map(Some)),
                }
            }
        };
        server.call(self.user.as_ref(), self.timeout, (doing, CallKind::Read), call).await
    }
}

fn request(path: &str, limit: i64) -> RangeRequest {
    let key = if path.is_empty() { vec![0] } else { path.as_bytes().to_vec() };
    let range_end = range_end(path.as_bytes());
    RangeRequest { key, range_end, limit, serializable: true, ..RangeRequest::default() }
}

/// Returns whether a key is before the end of a range.
fn is_below(key: &[u8], range_end: &[u8]) -> bool {
    range_end == [0] || key < range_end
}

/// As tonic says that a message is larger than the limit of the client.
fn is_too_large(status: &Status) -> bool {
    status.code() == tonic::Code::OutOfRange && status.message().contains("decoded message length too large")
}

fn failed(server: &EtcdServer, doing: &str, kind: RegistryErrorKind, reason: String) -> RegistryError {
    RegistryError { doing: doing.to_owned(), address: server.address.clone(), reason, kind }
}
