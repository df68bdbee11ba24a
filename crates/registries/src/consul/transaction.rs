//! Changes of instances, in transactions.

use std::collections::BTreeMap;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};

use crate::error::{RegistryError, RegistryErrorKind};
use crate::http_client::{HttpResponse, escaped};
use crate::instance::{Instance, InstanceVersion, ServiceKey};
use crate::owner::Owner;
use crate::registry::{Change, MayChange};

use super::wire::{
    CHECK_PREFIX, Check, CheckOperation, Node, NodeOperation, NodeService, NodeServices, Operation, Service,
    ServiceOperation, TransactionResult, Weights,
};
use super::{Consul, invalid_request, weight};

/// The limits of metadata, by `validateMetadata` in `agent/structs/structs.go` of Consul 1.19.
const MAX_PAIRS: usize = 64;
const MAX_KEY: usize = 128;
const MAX_VALUE: usize = 512;
const RESERVED_KEYS: &str = "consul-";

/// What Consul says about a stale version.
const STALE: &str = "index is stale";
/// What Consul says about a check of a service that does not exist.
const MISSING: &str = "Missing service registration";
/// What Consul says about a token that lacks a permission.
const DENIED: &str = "Permission denied";

/// What follows from the refusal of a change.
enum Refusal {
    Result(Result<(), RegistryError>),
    /// The change is sent again, on the condition that the service is of this version.
    Retry(InstanceVersion),
}

impl Consul {
    /// Makes the changes in one transaction. Consul makes all or none, so what it refuses is left out, and the others are
    /// sent again, each if `may_change` allows it by then.
    pub(super) async fn write_all(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        let mut results: Vec<Option<Result<(), RegistryError>>> = changes
            .iter()
            .map(|change| check(change).err().map(|reason| Err(self.error(change, reason))))
            .collect();
        // Without a version the service must not exist, or be ours: its version is read then.
        let mut versions: Vec<Option<InstanceVersion>> =
            changes.iter().map(|change| change.target().1.version).collect();
        loop {
            let open: Vec<usize> = (0..changes.len()).filter(|at| results[*at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let mut operations = vec![self.node()];
            let mut origin = vec![None];
            for at in &open {
                for operation in self.operations(&changes[*at], versions[*at]) {
                    operations.push(operation);
                    origin.push(Some(*at));
                }
            }
            match self.commit(&operations).await {
                Ok(errors) if errors.is_empty() => open.iter().for_each(|at| results[*at] = Some(Ok(()))),
                Ok(errors) => {
                    for (index, what) in errors {
                        if let Some(Some(at)) = origin.get(index) {
                            match self.refusal(&changes[*at], versions[*at], what, may_change).await {
                                Refusal::Result(result) => results[*at] = Some(result),
                                Refusal::Retry(version) => versions[*at] = Some(version),
                            }
                        } else {
                            let of_node = |at: &usize| Err(self.refused(&changes[*at], &what));
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
            // The others are sent again.
            for (change, result) in changes.iter().zip(&mut results).filter(|(_, result)| result.is_none()) {
                *result = may_change(change).err().map(Err);
            }
        }
        results.into_iter().map(|result| result.unwrap_or(Ok(()))).collect()
    }

    /// Returns what follows when a transaction with a change, conditional on `version`, was refused because of `what`.
    async fn refusal(
        &self,
        change: &Change,
        version: Option<InstanceVersion>,
        what: String,
        may_change: MayChange<'_>,
    ) -> Refusal {
        let (service, instance) = change.target();
        let conflict = |reason: String| {
            Err(RegistryError { kind: RegistryErrorKind::Conflict, ..self.error(change, reason) })
        };
        let known = [STALE, MISSING].into_iter().find(|known| what.contains(known));
        let Some(known) = known else { return Refusal::Result(Err(self.refused(change, &what))) };
        // Each of many refusals is a call.
        if let Err(error) = may_change(change) {
            return Refusal::Result(Err(error));
        }
        let stored = match self.stored(service, instance).await {
            Ok(stored) => stored,
            Err(error) => return Refusal::Result(Err(RegistryError { doing: change.to_string(), ..error })),
        };
        let stored = match (stored, change) {
            (None, Change::Deregister(..)) => return Refusal::Result(Ok(())),
            (None, _) => return Refusal::Result(conflict(known.to_owned())),
            (Some(stored), _) => stored,
        };
        let owner = Owner::of(&stored.meta.0);
        if version.is_none() && owner.is_some() && owner == instance.owner() {
            return Refusal::Retry(InstanceVersion(stored.modify_index));
        }
        let reason = match version {
            Some(_) => known.to_owned(),
            None => {
                let is_same = stored.service == service.name;
                let of =
                    if is_same { format!("service {}", service.name) } else { "another service".to_owned() };
                let (node, id) = (&self.options.node, &instance.id);
                format!("node {node} has an instance {id} of {of} that somebody else has registered")
            }
        };
        Refusal::Result(conflict(reason))
    }

    /// Returns the error of a change that Consul does not accept because of `what`, which is text of the server.
    fn refused(&self, change: &Change, what: &str) -> RegistryError {
        let (kind, reason) = match what.contains(DENIED) {
            true => (RegistryErrorKind::Denied, "permission denied; check the token and its permissions"),
            false => (RegistryErrorKind::Rejected, "Consul does not accept the change"),
        };
        let error = RegistryError {
            kind,
            ..self.error(change, format!("{reason}; the log of the bridge has the details"))
        };
        self.http.log(&error, what);
        error
    }

    /// Reads what is stored with the id of an instance on the node: from the leader, by the first address that answers.
    async fn stored(
        &self,
        service: &ServiceKey,
        instance: &Instance,
    ) -> Result<Option<NodeService>, RegistryError> {
        let doing = format!("read instance {} of service {}", instance.id, service.name);
        let mut query = format!("&filter={}", escaped(&format!("ID == {:?}", instance.id)));
        if !service.namespace.is_empty() {
            query.push_str(&format!("&ns={}", escaped(&service.namespace)));
        }
        let mut last = None;
        for address in &self.addresses {
            let found = async {
                let response = self.read(address, &self.node_path(), &query, &doing).await?;
                let all: NodeServices = response.json(&doing, address)?;
                let found = all.services.0.into_iter().find(|found| found.id == instance.id);
                if found.is_none() {
                    self.check_complete(&response, &self.node_rights(), &doing, address)?;
                }
                Ok(found)
            };
            match found.await {
                Ok(found) => return Ok(found),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| self.no_address(&doing)))
    }

    fn no_address(&self, doing: &str) -> RegistryError {
        invalid_request(doing, "no address", "there is no address".to_owned())
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

    fn operations<'a>(&'a self, change: &'a Change, version: Option<InstanceVersion>) -> Vec<Operation<'a>> {
        let (service, instance) = change.target();
        match change {
            Change::Register(..) => {
                vec![self.service("cas", service, instance, version), self.check(service, instance)]
            }
            Change::SetInService(..) => vec![self.check(service, instance)],
            Change::Deregister(..) => vec![self.service("delete-cas", service, instance, version)],
        }
    }

    /// With the index 0, `cas` succeeds only if there is no such service, and `delete-cas` never.
    fn service<'a>(
        &'a self,
        verb: &'static str,
        key: &'a ServiceKey,
        instance: &'a Instance,
        version: Option<InstanceVersion>,
    ) -> Operation<'a> {
        let is_complete = verb == "cas";
        let weight = instance.weight as u32;
        let service = Service {
            id: &instance.id,
            service: &key.name,
            namespace: &key.namespace,
            partition: &self.options.partition,
            address: &instance.host,
            port: instance.port,
            meta: is_complete.then_some(&instance.metadata),
            weights: is_complete.then_some(Weights { passing: weight, warning: weight }),
            modify_index: version.map_or(0, |version| version.0),
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
            check_id: format!("{CHECK_PREFIX}{}", instance.id),
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
        Err(last.unwrap_or_else(|| self.no_address(doing)))
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

/// Checks what Consul would not store, so that one such change does not stop the others of its transaction.
fn check(change: &Change) -> Result<(), String> {
    let Change::Register(service, instance) = change else { return Ok(()) };
    if service.name.is_empty() {
        return Err("the name of the service is empty".to_owned());
    }
    weight::check(instance.weight)?;
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
