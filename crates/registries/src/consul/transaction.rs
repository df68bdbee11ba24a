//! Changes of instances, in transactions.

use std::collections::BTreeMap;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};

use crate::error::{RegistryError, RegistryErrorKind};
use crate::http_client::HttpResponse;
use crate::instance::{Instance, ServiceKey};
use crate::registry::{Change, Registry};

use super::wire::{
    Check, CheckOperation, Node, NodeOperation, Operation, Service, ServiceOperation, TransactionResult,
    Weights,
};
use super::{Consul, invalid_request};

/// The limits of metadata, by `validateMetadata` in `agent/structs/structs.go` of Consul 1.19.
const MAX_PAIRS: usize = 64;
const MAX_KEY: usize = 128;
const MAX_VALUE: usize = 512;
const RESERVED_KEYS: &str = "consul-";

/// What Consul says about a stale version.
const STALE: &str = "index is stale";
/// What Consul says about a check of a service that does not exist.
const MISSING: &str = "Missing service registration";

impl Consul {
    /// Makes the changes in one transaction. Consul makes all or none, so what it refuses is left out, and the others are
    /// sent again.
    pub(super) async fn write_all(&self, changes: &[Change]) -> Vec<Result<(), RegistryError>> {
        let mut results: Vec<Option<Result<(), RegistryError>>> = changes
            .iter()
            .map(|change| check(change).err().map(|reason| Err(self.error(change, reason))))
            .collect();
        loop {
            let open: Vec<usize> = (0..changes.len()).filter(|at| results[*at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let mut operations = vec![self.node()];
            let mut origin = vec![None];
            for at in &open {
                for operation in self.operations(&changes[*at]) {
                    operations.push(operation);
                    origin.push(Some(*at));
                }
            }
            match self.commit(&operations).await {
                Ok(errors) if errors.is_empty() => open.iter().for_each(|at| results[*at] = Some(Ok(()))),
                Ok(errors) => {
                    for (index, what) in errors {
                        if let Some(Some(at)) = origin.get(index) {
                            results[*at] = Some(self.refusal(&changes[*at], what).await);
                        } else {
                            let of_node = |at: &usize| Err(self.error(&changes[*at], what.clone()));
                            open.iter().for_each(|at| results[*at] = Some(of_node(at)));
                        }
                    }
                }
                Err(error) => {
                    for at in open {
                        let error = RegistryError { doing: changes[at].to_string(), ..error.clone() };
                        results[at] = Some(Err(error));
                    }
                }
            }
        }
        results.into_iter().map(|result| result.unwrap_or(Ok(()))).collect()
    }

    /// Returns the result of a change that a transaction refused because of `what`.
    async fn refusal(&self, change: &Change, what: String) -> Result<(), RegistryError> {
        let (service, instance) = change.target();
        let is_conflict = what.contains(STALE) || what.contains(MISSING);
        if let (Change::Deregister(..), true) = (change, is_conflict) {
            // A version is also stale when there is nothing left to remove.
            let left = self.instances(0, service).await?;
            if left.iter().all(|left| left.id != instance.id) {
                return Ok(());
            }
        }
        let kind = if is_conflict { RegistryErrorKind::Conflict } else { RegistryErrorKind::Rejected };
        Err(RegistryError { kind, ..self.error(change, what) })
    }

    fn error(&self, change: &Change, reason: String) -> RegistryError {
        invalid_request(&change.to_string(), &self.addresses.join(", "), reason)
    }

    fn node(&self) -> Operation<'_> {
        let node = Node {
            node: &self.options.node,
            // Nobody sends anything there: each instance has an address of its own.
            address: "127.0.0.1",
            partition: &self.options.partition,
            meta: BTreeMap::from([("synthetic-node", "true")]),
        };
        Operation { node: Some(NodeOperation { verb: "set", node }), ..Operation::default() }
    }

    fn operations<'a>(&'a self, change: &'a Change) -> Vec<Operation<'a>> {
        let (service, instance) = change.target();
        match change {
            Change::Register(..) => {
                // With version 0 an instance that somebody else has removed would be registered again.
                let verb = if instance.version.is_some() { "cas" } else { "set" };
                vec![self.service(verb, service, instance, true), self.check(service, instance)]
            }
            Change::SetInService(..) => vec![self.check(service, instance)],
            Change::Deregister(..) => {
                let verb = if instance.version.is_some() { "delete-cas" } else { "delete" };
                vec![self.service(verb, service, instance, false)]
            }
        }
    }

    fn service<'a>(
        &'a self,
        verb: &'static str,
        key: &'a ServiceKey,
        instance: &'a Instance,
        is_complete: bool,
    ) -> Operation<'a> {
        let weight = weight(instance.weight);
        let service = Service {
            id: &instance.id,
            service: &key.name,
            namespace: &key.namespace,
            partition: &self.options.partition,
            address: &instance.host,
            port: instance.port,
            meta: is_complete.then_some(&instance.metadata),
            weights: is_complete.then_some(Weights { passing: weight, warning: weight }),
            modify_index: instance.version.map(|version| version.0),
        };
        let operation = ServiceOperation { verb, node: &self.options.node, service };
        Operation { service: Some(operation), ..Operation::default() }
    }

    fn check<'a>(&'a self, key: &'a ServiceKey, instance: &'a Instance) -> Operation<'a> {
        let (status, output) = match instance.in_service {
            true => ("passing", "the pod is in service"),
            false => ("critical", "Podward has taken the pod out of service"),
        };
        let check = Check {
            node: &self.options.node,
            check_id: format!("podward:{}", instance.id),
            name: "Podward",
            status,
            output,
            service_id: &instance.id,
            namespace: &key.namespace,
            partition: &self.options.partition,
        };
        Operation { check: Some(CheckOperation { verb: "set", check }), ..Operation::default() }
    }

    /// Sends a transaction to the first address that is reachable. Returns the operations that Consul refused, each with the
    /// reason. Then none was made.
    async fn commit(&self, operations: &[Operation<'_>]) -> Result<Vec<(usize, String)>, RegistryError> {
        let doing = "write a transaction";
        let body = serde_json::to_vec(operations)
            .map_err(|error| invalid_request(doing, &self.addresses.join(", "), error.to_string()))?;
        let body = Bytes::from(body);
        let mut last = None;
        for address in &self.addresses {
            let request = self.request(Method::PUT, address, "/v1/txn", "", body.clone());
            let request = request.map_err(|reason| invalid_request(doing, address, reason))?;
            match self.http.send(request, doing).await {
                // Nothing was sent.
                Err(error) if error.kind == RegistryErrorKind::Unavailable => last = Some(error),
                Err(error) => return Err(error),
                Ok(response) => return outcome(&response, doing, address),
            }
        }
        Err(last.unwrap_or_else(|| invalid_request(doing, "no address", "there is no address".to_owned())))
    }
}

fn outcome(
    response: &HttpResponse,
    doing: &str,
    address: &str,
) -> Result<Vec<(usize, String)>, RegistryError> {
    match response.status {
        StatusCode::OK => Ok(Vec::new()),
        StatusCode::CONFLICT => {
            let result: TransactionResult = response.json(doing, address)?;
            if result.errors.is_empty() {
                return Err(response.failure(doing, address));
            }
            Ok(result.errors.into_iter().map(|error| (error.op_index, error.what)).collect())
        }
        // A server that cannot reach the leader does not say whether the transaction was made.
        status if status.is_server_error() => {
            Err(RegistryError { kind: RegistryErrorKind::Unknown, ..response.failure(doing, address) })
        }
        _ => Err(response.failure(doing, address)),
    }
}

/// Consul's weights are whole numbers from 1 on.
fn weight(weight: f64) -> u32 {
    weight.clamp(1.0, 65_535.0).round() as u32
}

/// Checks what Consul would not store, so that one such change does not stop the others of its transaction.
fn check(change: &Change) -> Result<(), String> {
    let Change::Register(service, instance) = change else { return Ok(()) };
    if service.name.is_empty() {
        return Err("the name of the service is empty".to_owned());
    }
    if instance.metadata.len() > MAX_PAIRS {
        return Err(format!(
            "there are {} entries of metadata, more than {MAX_PAIRS}",
            instance.metadata.len()
        ));
    }
    for (key, value) in &instance.metadata {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if key.is_empty()
            || key.len() > MAX_KEY
            || !key.bytes().all(is_valid)
            || key.starts_with(RESERVED_KEYS)
        {
            return Err(format!(
                "metadata key {key:?}: Consul allows 1 to {MAX_KEY} letters, digits, '-' and '_', not beginning with {RESERVED_KEYS}"
            ));
        }
        if value.len() > MAX_VALUE {
            return Err(format!("the value of metadata key {key:?} has more than {MAX_VALUE} bytes"));
        }
    }
    Ok(())
}
