//! Changes of instances, each conditional on the revision of its key.

use tonic::Request;

use crate::error::{RegistryError, RegistryErrorKind};
use crate::instance::{Instance, InstanceVersion, ServiceKey};
use crate::registry::Change;

use super::calls::CallKind;
use super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::kv_client::KvClient;
use super::proto::request_op::Request as Operation;
use super::proto::response_op::Response as OperationResult;
use super::proto::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest,
    TxnResponse,
};
use super::{Etcd, instance, text_of};

/// The result of one change in a transaction.
enum ChangeResult {
    Made,
    /// The key is not of the expected revision. What is stored there, if anything.
    Refused(Option<KeyValue>),
}

impl Etcd {
    /// Makes the changes, each as a transaction of its own, in one call.
    pub(super) async fn write_all(&self, changes: &[Change]) -> Vec<Result<(), RegistryError>> {
        let versions: Vec<Option<InstanceVersion>> =
            changes.iter().map(|change| change.target().1.version).collect();
        let first = self.commit(changes, &versions).await;
        let mut results = Vec::new();
        for (change, result) in changes.iter().zip(first) {
            results.push(match result {
                Ok(ChangeResult::Made) => Ok(()),
                Ok(ChangeResult::Refused(stored)) => self.settle(change, stored).await,
                Err(error) => Err(error),
            });
        }
        results
    }

    /// Settles a change whose key was not of the expected revision.
    async fn settle(&self, change: &Change, stored: Option<KeyValue>) -> Result<(), RegistryError> {
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
        let present = instance(&wanted.id, &stored);
        let is_ours = present
            .as_ref()
            .is_some_and(|present| present.owner().is_some() && present.owner() == wanted.owner());
        if wanted.version.is_some() || !is_ours {
            let key = String::from_utf8_lossy(&self.key(service, wanted)).into_owned();
            return Err(conflict(&format!("somebody else has written key {key:?}")));
        }
        let version = present.and_then(|present| present.version);
        match self.commit(std::slice::from_ref(change), &[version]).await.pop() {
            Some(Ok(ChangeResult::Made)) | None => Ok(()),
            Some(Ok(ChangeResult::Refused(_))) => Err(conflict("somebody else writes it at the same time")),
            Some(Err(error)) => Err(error),
        }
    }

    async fn commit(
        &self,
        changes: &[Change],
        versions: &[Option<InstanceVersion>],
    ) -> Vec<Result<ChangeResult, RegistryError>> {
        let mut operations = Vec::new();
        let mut results: Vec<Option<Result<ChangeResult, RegistryError>>> = Vec::new();
        for (change, version) in changes.iter().zip(versions) {
            match self.operation(change, *version) {
                Ok(operation) => {
                    operations.push(operation);
                    results.push(None);
                }
                Err(reason) => results.push(Some(Err(self.rejected(change, reason)))),
            }
        }
        let mut answers = match operations.is_empty() {
            true => Ok(Vec::new()),
            false => self.send(operations).await,
        }
        .map(Vec::into_iter);
        let next = |change: &Change| match &mut answers {
            Ok(answers) => answers
                .next()
                .and_then(result_of)
                .ok_or_else(|| self.rejected(change, "the response of etcd is incomplete".to_owned())),
            Err(error) => Err(RegistryError { doing: change.to_string(), ..error.clone() }),
        };
        let mut next = next;
        results
            .into_iter()
            .zip(changes)
            .map(|(result, change)| result.unwrap_or_else(|| next(change)))
            .collect()
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
    fn operation(&self, change: &Change, version: Option<InstanceVersion>) -> Result<RequestOp, String> {
        let (service, wanted) = change.target();
        check(service, wanted)?;
        let key = self.key(service, wanted);
        let operation = match change {
            Change::Register(..) => {
                let value = text_of(wanted).map_err(|error| error.to_string())?;
                Operation::RequestPut(PutRequest { key: key.clone(), value })
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
                let mut client = KvClient::new(server.channel.clone());
                let request = context.map(|()| request.clone());
                async move { client.txn(request).await }
            };
            match server.call(self.user.as_ref(), self.timeout, (doing, CallKind::Write), call).await {
                // Nothing was sent.
                Err(error) if error.kind == RegistryErrorKind::Unavailable => last = Some(error),
                Err(error) => return Err(error),
                Ok(TxnResponse { responses, .. }) => return Ok(responses),
            }
        }
        Err(last.unwrap_or_else(|| RegistryError {
            doing: doing.to_owned(),
            address: "no address".to_owned(),
            reason: "there is no address".to_owned(),
            kind: RegistryErrorKind::Rejected,
        }))
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

/// A slash in an id would make it the instance of another service.
fn check(service: &ServiceKey, wanted: &Instance) -> Result<(), String> {
    if service.name.is_empty() {
        return Err("the name of the service is empty".to_owned());
    }
    if wanted.id.is_empty() || wanted.id.contains('/') {
        return Err(format!("the id {:?} of an instance must not be empty or contain '/'", wanted.id));
    }
    Ok(())
}
