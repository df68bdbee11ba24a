//! The calls that keep the lease of the keys alive.

use std::time::Instant;

use tonic::{Request, Status};

use crate::error::RegistryError;
use crate::instance::{Instance, InstanceVersion, ServiceKey};
use crate::registry::{Change, MayChange};

use super::Etcd;
use super::calls::{CallKind, EtcdServer, MAX_MESSAGE};
use super::lease::{Granted, Lease};
use super::proto::kv_client::KvClient;
use super::proto::lease_client::LeaseClient;
use super::proto::request_op::Request as Operation;
use super::proto::response_op::Response as OperationResult;
use super::proto::{
    KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, RangeRequest, RequestOp,
    TxnRequest,
};

impl Etcd {
    /// Returns the id of the lease for keys that are written, and keeps it alive: 0 if keys have none.
    ///
    /// # Errors
    /// Fails if no address can grant one or keep it alive.
    pub(super) async fn lease_id(&self) -> Result<i64, RegistryError> {
        let Some(lease) = &self.lease else { return Ok(0) };
        let mut granted = lease.granted.lock().await;
        let present = granted.filter(|granted| granted.kept.elapsed() < lease.interval() / 2);
        if let Some(Granted { id, .. }) = present {
            return Ok(id);
        }
        let mut last = None;
        for server in &self.servers {
            let kept = Instant::now();
            match self.lease_at(server, lease, granted.map(|granted| granted.id)).await {
                Ok(id) => {
                    *granted = Some(Granted { id, kept });
                    return Ok(id);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| self.no_address("grant a lease")))
    }

    /// Keeps a lease alive at a server, or is granted another one.
    async fn lease_at(
        &self,
        server: &EtcdServer,
        lease: &Lease,
        id: Option<i64>,
    ) -> Result<i64, RegistryError> {
        if let Some(id) = id
            && self.keep_alive(server, id).await?
        {
            return Ok(id);
        }
        let ttl = i64::try_from(lease.time.as_secs()).unwrap_or(i64::MAX);
        let call = |context: Request<()>| {
            let mut client = LeaseClient::new(server.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
            async move { client.lease_grant(context.map(|()| LeaseGrantRequest { ttl })).await }
        };
        // A lease whose id is lost ends by itself.
        let kind = ("grant a lease", CallKind::Read);
        let LeaseGrantResponse { id } = server.call(self.user.as_ref(), self.timeout, kind, call).await?;
        Ok(id)
    }

    /// Renews the registrations of instances: attaches their keys to the lease of this client, unless `may_change` does not
    /// allow it: they keep their lease then, and the result is its error.
    pub(super) async fn renew_all(
        &self,
        instances: &[(ServiceKey, Instance)],
        may_change: MayChange<'_>,
    ) -> Vec<Result<bool, RegistryError>> {
        let renewed = async {
            let id = self.lease_id().await?;
            Ok((id, self.stored(instances).await?))
        };
        let (id, stored) = match renewed.await {
            Ok(found) => found,
            Err(error) => return instances.iter().map(|_| Err(RegistryError::clone(&error))).collect(),
        };
        let mut results: Vec<Result<bool, RegistryError>> = Vec::new();
        let (mut places, mut changes) = (Vec::new(), Vec::new());
        for (at, ((service, wanted), stored)) in instances.iter().zip(stored).enumerate() {
            let found = stored.as_ref().and_then(|pair| self.instance_of(service, pair));
            let is_ours = found.as_ref().is_some_and(|found| found.owner() == wanted.owner());
            results.push(Ok(is_ours));
            if let Some(pair) = stored.filter(|pair| is_ours && pair.lease != id) {
                let version = u64::try_from(pair.mod_revision).ok().map(InstanceVersion);
                let change = Change::Register(service.clone(), Instance { version, ..wanted.clone() });
                match may_change(&change) {
                    Ok(()) => {
                        places.push(at);
                        changes.push(change);
                    }
                    // It is tried again soon, because nobody may keep that lease alive.
                    Err(error) => results[at] = Err(error),
                }
            }
        }
        for (at, result) in places.into_iter().zip(self.write_all(&changes, may_change).await) {
            results[at] = result.map(|()| true);
        }
        results
    }

    /// Reads the keys of instances, in one call.
    async fn stored(
        &self,
        instances: &[(ServiceKey, Instance)],
    ) -> Result<Vec<Option<KeyValue>>, RegistryError> {
        let doing = "read the keys of instances";
        let reads = instances.iter().map(|(service, instance)| {
            let key = self.format.key(service, instance).unwrap_or_default();
            // An empty key is none.
            let key = if key.is_empty() { vec![0] } else { key };
            let read = Operation::RequestRange(RangeRequest { key, ..RangeRequest::default() });
            RequestOp { request: Some(read) }
        });
        let request = TxnRequest { success: reads.collect(), ..TxnRequest::default() };
        let mut found = Err(self.no_address(doing));
        for server in &self.servers {
            let call = |context: Request<()>| {
                let mut client = KvClient::new(server.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
                let request = context.map(|()| request.clone());
                async move { client.txn(request).await }
            };
            found = server.call(self.user.as_ref(), self.timeout, (doing, CallKind::Read), call).await;
            if found.is_ok() {
                break;
            }
        }
        let mut responses = found?.responses.into_iter();
        let next = |_| match responses.next()?.response? {
            OperationResult::ResponseRange(range) => range.kvs.into_iter().next(),
            _ => None,
        };
        Ok(instances.iter().map(next).collect())
    }

    /// Returns false if there is no such lease any more.
    async fn keep_alive(&self, server: &EtcdServer, id: i64) -> Result<bool, RegistryError> {
        let doing = "keep the lease alive";
        let call = |context: Request<()>| {
            let mut client = LeaseClient::new(server.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
            let first = tokio_stream::once(LeaseKeepAliveRequest { id });
            async move { client.lease_keep_alive(context.map(|()| first)).await }
        };
        let user = self.user.as_ref();
        let mut answers = server.call(user, self.timeout, (doing, CallKind::Read), call).await?;
        let answer = tokio::time::timeout(self.timeout, answers.message()).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no response")));
        let answer = answer.map_err(|status| server.error(doing, CallKind::Read, &status))?;
        Ok(answer.is_some_and(|answer| answer.ttl > 0))
    }
}
