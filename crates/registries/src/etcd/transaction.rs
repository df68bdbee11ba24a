//! Changes of instances, each conditional on the revision of its key.

use std::collections::HashSet;

use tonic::Request;

use crate::error::{RegistryError, RegistryErrorKind};
use crate::instance::InstanceVersion;
use crate::registry::{Change, MayChange};

use super::Etcd;
use super::calls::{CallKind, MAX_MESSAGE};
use super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::kv_client::KvClient;
use super::proto::request_op::Request as Operation;
use super::proto::response_op::Response as OperationResult;
use super::proto::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest,
    TxnResponse,
};

/// What etcd says about a lease that it does not know.
const NO_LEASE: &str = "requested lease not found";

/// The result of one change in a transaction.
enum ChangeResult {
    Made,
    /// The key is not of the expected revision. What is stored there, if anything.
    Refused(Option<KeyValue>),
}

impl Etcd {
    /// Makes the changes, each as a transaction of its own, in one call. etcd refuses a call that changes a key twice, so
    /// further changes of a key follow in another one, each if `may_change` allows it by then.
    pub(super) async fn write_all(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        let mut results: Vec<Result<(), RegistryError>> = changes.iter().map(|_| Ok(())).collect();
        let mut open: Vec<(usize, &Change)> = changes.iter().enumerate().collect();
        while !open.is_empty() {
            let mut keys = HashSet::new();
            let (now, later) = open.into_iter().partition(|(_, change)| {
                let (service, instance) = change.target();
                keys.insert(self.format.key(service, instance))
            });
            self.write_once(now, &mut results, may_change).await;
            open = later;
            open.retain(|(at, change)| match may_change(change) {
                Ok(()) => true,
                Err(error) => {
                    results[*at] = Err(error);
                    false
                }
            });
        }
        results
    }

    /// Makes changes of different keys in one call. `results` are those of all changes.
    async fn write_once(
        &self,
        changes: Vec<(usize, &Change)>,
        results: &mut [Result<(), RegistryError>],
        may_change: MayChange<'_>,
    ) {
        let with_versions: Vec<(&Change, Option<InstanceVersion>)> =
            changes.iter().map(|(_, change)| (*change, change.target().1.version)).collect();
        let first = self.commit(&with_versions).await;
        for ((at, change), result) in changes.into_iter().zip(first) {
            results[at] = match result {
                Ok(ChangeResult::Made) => Ok(()),
                Ok(ChangeResult::Refused(stored)) => self.settle(change, stored, may_change).await,
                Err(error) => Err(error),
            };
        }
    }

    /// Settles a change whose key was not of the expected revision.
    async fn settle(
        &self,
        change: &Change,
        stored: Option<KeyValue>,
        may_change: MayChange<'_>,
    ) -> Result<(), RegistryError> {
        let (service, wanted) = change.target();
        let conflict = |reason: &str| RegistryError {
            doing: change.to_string(),
            address: self.addresses.join(", "),
            reason: reason.to_owned(),
            kind: RegistryErrorKind::Conflict,
        };
        let Some(stored) = stored else {
            return match change {
                Change::Deregister(..) => Ok(()),
                _ => Err(conflict("somebody else has removed it")),
            };
        };
        let present = self.instance_of(service, &stored);
        let is_ours = present
            .as_ref()
            .is_some_and(|present| present.owner().is_some() && present.owner() == wanted.owner());
        if wanted.version.is_some() || !is_ours {
            let key = self.format.key(service, wanted).unwrap_or_default();
            let key = String::from_utf8_lossy(&key).into_owned();
            return Err(conflict(&format!("somebody else has written key {key:?}")));
        }
        may_change(change)?;
        let version = present.and_then(|present| present.version);
        match self.commit(&[(change, version)]).await.pop() {
            Some(Ok(ChangeResult::Made)) | None => Ok(()),
            Some(Ok(ChangeResult::Refused(_))) => Err(conflict("somebody else writes it at the same time")),
            Some(Err(error)) => Err(error),
        }
    }

    /// Makes changes of different keys, each on the condition that its key is of the version.
    async fn commit(
        &self,
        changes: &[(&Change, Option<InstanceVersion>)],
    ) -> Vec<Result<ChangeResult, RegistryError>> {
        let needs_lease = changes.iter().any(|(change, _)| matches!(change, Change::Register(..)));
        let lease = match needs_lease {
            true => self.lease_id().await,
            false => Ok(0),
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(error) => {
                let failed = |(change, _): &(&Change, _)| {
                    Err(RegistryError { doing: change.to_string(), ..error.clone() })
                };
                return changes.iter().map(failed).collect();
            }
        };
        let operations: Vec<Result<RequestOp, String>> =
            changes.iter().map(|(change, version)| self.operation(change, *version, lease)).collect();
        let sent: Vec<RequestOp> = operations.iter().filter_map(|it| it.as_ref().ok().cloned()).collect();
        let mut answers = match sent.is_empty() {
            true => Ok(Vec::new()),
            false => self.send(sent).await,
        }
        .map(Vec::into_iter);
        let mut results = Vec::new();
        for ((change, _), operation) in changes.iter().zip(operations) {
            results.push(match (operation, &mut answers) {
                (Err(reason), _) => Err(self.rejected(change, reason)),
                (Ok(_), Ok(answers)) => {
                    answers.next().and_then(result_of).ok_or_else(|| self.incomplete(change))
                }
                (Ok(_), Err(error)) => Err(RegistryError { doing: change.to_string(), ..error.clone() }),
            });
        }
        results
    }

    /// The change may have been made.
    fn incomplete(&self, change: &Change) -> RegistryError {
        let reason = "the response of etcd is incomplete".to_owned();
        RegistryError { kind: RegistryErrorKind::Unknown, ..self.rejected(change, reason) }
    }

    fn rejected(&self, change: &Change, reason: String) -> RegistryError {
        RegistryError {
            doing: change.to_string(),
            address: self.addresses.join(", "),
            reason,
            kind: RegistryErrorKind::Rejected,
        }
    }

    /// Returns the change as a transaction that reads the key if it is not of `version`. Without a version the key must not
    /// exist.
    fn operation(
        &self,
        change: &Change,
        version: Option<InstanceVersion>,
        lease: i64,
    ) -> Result<RequestOp, String> {
        let (service, wanted) = change.target();
        let key = self.format.key(service, wanted)?;
        let operation = match change {
            Change::Register(..) => {
                let value = self.format.value(service, wanted)?;
                Operation::RequestPut(PutRequest { key: key.clone(), value, lease })
            }
            Change::Deregister(..) => Operation::RequestDeleteRange(DeleteRangeRequest { key: key.clone() }),
            Change::SetInService(..) => {
                return Err("etcd has no instances out of service: deregister it".to_owned());
            }
        };
        let revision = version.map_or(0, |version| version.0);
        let revision = i64::try_from(revision).map_err(|_| "its version is not one of etcd".to_owned())?;
        let compare = Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key: key.clone(),
            target_union: Some(TargetUnion::ModRevision(revision)),
        };
        let read = Operation::RequestRange(RangeRequest { key, ..RangeRequest::default() });
        let transaction = TxnRequest {
            compare: vec![compare],
            success: vec![RequestOp { request: Some(operation) }],
            failure: vec![RequestOp { request: Some(read) }],
        };
        Ok(RequestOp { request: Some(Operation::RequestTxn(transaction)) })
    }

    /// Sends the operations to the first address that is reachable.
    async fn send(&self, operations: Vec<RequestOp>) -> Result<Vec<ResponseOp>, RegistryError> {
        let doing = "write a transaction";
        let request = TxnRequest { success: operations, ..TxnRequest::default() };
        let mut last = None;
        for server in &self.servers {
            let call = |context: Request<()>| {
                let mut client = KvClient::new(server.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
                let request = context.map(|()| request.clone());
                async move { client.txn(request).await }
            };
            match server.call(self.user.as_ref(), self.timeout, (doing, CallKind::Write), call).await {
                // Nothing was sent.
                Err(error) if error.kind == RegistryErrorKind::Unavailable => last = Some(error),
                Err(error) => {
                    // etcd has lost the lease with its state, or it has ended.
                    if let Some(lease) = self.lease.as_ref().filter(|_| error.reason.contains(NO_LEASE)) {
                        lease.forget().await;
                        return Err(RegistryError { kind: RegistryErrorKind::Unavailable, ..error });
                    }
                    return Err(error);
                }
                Ok(TxnResponse { responses, .. }) => return Ok(responses),
            }
        }
        Err(last.unwrap_or_else(|| self.no_address(doing)))
    }
}

fn result_of(response: ResponseOp) -> Option<ChangeResult> {
    let Some(OperationResult::ResponseTxn(transaction)) = response.response else { return None };
    if transaction.succeeded {
        return Some(ChangeResult::Made);
    }
    match transaction.responses.into_iter().next()?.response? {
        OperationResult::ResponseRange(range) => Some(ChangeResult::Refused(range.kvs.into_iter().next())),
        _ => None,
    }
}
