//! Changes of instances.

use std::collections::{BTreeMap, HashMap};

use futures::stream::{self, StreamExt as _};
use hyper::header::HeaderValue;

use crate::error::{RegistryError, RegistryErrorKind};
use crate::instance::{Instance, ServiceKey};
use crate::registry::{Change, MayChange, Registry};

use super::call::{Call, Verdict};
use super::template::{Field, Subject};
use super::{Answer, HttpRegistry, rejected};

/// The number of calls at the same time.
const CONCURRENCY: usize = 8;

/// The instances of the services of some changes, before they are made.
type Before<'a> = HashMap<&'a ServiceKey, Result<Vec<Instance>, RegistryError>>;

/// What a server has answered to a call.
enum Outcome {
    Done,
    Gone,
    /// 404 or 410, of which nobody has said what it means.
    NotFound(RegistryError),
}

impl HttpRegistry {
    /// Makes the changes, each with its own call, while `may_change` allows it.
    pub(super) async fn write_all(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        let before = self.before(changes).await;
        // The changes of one instance are made in their order.
        let mut groups: BTreeMap<(&ServiceKey, &str, &str, u16), Vec<usize>> = BTreeMap::new();
        for (at, change) in changes.iter().enumerate() {
            let (service, instance) = change.target();
            groups.entry((service, &instance.id, &instance.host, instance.port)).or_default().push(at);
        }
        let before = &before;
        let calls = groups.into_values().map(|group| async move {
            let mut results = Vec::new();
            for at in group {
                let result = match may_change(&changes[at]) {
                    Ok(()) => self.write_one(&changes[at], before, may_change).await,
                    refused => refused,
                };
                results.push((at, result));
            }
            results
        });
        let mut results: Vec<_> = stream::iter(calls).buffer_unordered(CONCURRENCY).concat().await;
        results.sort_unstable_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Reads the services whose instances are about to be registered or deregistered, from the first address that answers.
    async fn before<'a>(&self, changes: &'a [Change]) -> Before<'a> {
        let mut before = Before::new();
        if self.reading.is_none() {
            return before;
        }
        for change in changes {
            let (service, _) = change.target();
            if matches!(change, Change::SetInService(..)) || before.contains_key(service) {
                continue;
            }
            let mut result = Err(no_address(&change.to_string()));
            for address in &self.addresses {
                result = self.read(address, service).await;
                if !matches!(&result, Err(error) if error.kind == RegistryErrorKind::Unavailable) {
                    break;
                }
            }
            // Nothing has been written yet.
            let result = result.map_err(|error| match error.kind {
                RegistryErrorKind::Unknown => RegistryError { kind: RegistryErrorKind::Unavailable, ..error },
                _ => error,
            });
            // What does not concern the changes is not kept meanwhile.
            let is_concerned = |stored: &Instance| {
                let targets = changes.iter().map(Change::target).filter(|(of, _)| *of == service);
                targets.into_iter().any(|(_, instance)| self.is_same(stored, instance))
            };
            let result = result.map(|found| found.into_iter().filter(is_concerned).collect());
            before.insert(service, result);
        }
        before
    }

    /// Makes one change. `before` are the instances of its service, if they can be read.
    async fn write_one(
        &self,
        change: &Change,
        before: &Before<'_>,
        may_change: MayChange<'_>,
    ) -> Result<(), RegistryError> {
        let (service, instance) = change.target();
        let doing = change.to_string();
        let refused = |kind, reason: &str| RegistryError {
            kind,
            ..rejected(&doing, &self.addresses.join(", "), reason.to_owned())
        };
        let call = self.call(change).map_err(|reason| refused(RegistryErrorKind::Rejected, reason))?;
        let mut is_absent = false;
        if let Some(before) = before.get(service)
            && !matches!(change, Change::SetInService(..))
        {
            let before = before.as_ref().map_err(|error| RegistryError {
                doing: format!("{doing}: {}", error.doing),
                ..error.clone()
            })?;
            let stored = before.iter().find(|stored| self.is_same(stored, instance));
            is_absent = stored.is_none();
            let is_ours = |stored: &&Instance| match change {
                Change::Register(..) => instance.may_replace(stored),
                _ => stored.owner() == instance.owner(),
            };
            if stored.is_some_and(|stored| !is_ours(&stored)) {
                let reason = "somebody else has registered an instance in its place";
                return Err(refused(RegistryErrorKind::Conflict, reason));
            }
        }
        let key = self.keys.key(change);
        let subject = Subject { service: Some(service), instance: Some(instance) };
        let mut result = Err(no_address(&doing));
        for address in &self.addresses {
            // The address before may have taken the whole time of a call.
            may_change(change)?;
            result = self.attempt(call, address, subject, (&doing, &key)).await;
            // Nothing was changed: another address may do it.
            if !matches!(&result, Err(error) if error.kind == RegistryErrorKind::Unavailable) {
                break;
            }
        }
        let is_open = matches!(&result, Err(error)
            if matches!(error.kind, RegistryErrorKind::Unavailable | RegistryErrorKind::Unknown));
        if !is_open {
            self.keys.settled(change);
        }
        match (result?, change) {
            (Outcome::Done, _) | (Outcome::Gone, Change::Deregister(..)) => Ok(()),
            (Outcome::Gone, _) => {
                Err(refused(RegistryErrorKind::Conflict, "the registry does not know the instance"))
            }
            // It was not there before, and the registry says that it does not find it.
            (Outcome::NotFound(_), Change::Deregister(..)) if is_absent => Ok(()),
            (Outcome::NotFound(error), _) => Err(error),
        }
    }

    /// Makes a call at one address.
    async fn attempt(
        &self,
        call: &Call,
        address: &str,
        subject: Subject<'_>,
        (doing, key): (&str, &str),
    ) -> Result<Outcome, RegistryError> {
        let request = call.request(address, subject).map_err(|reason| rejected(doing, address, reason))?;
        let mut request = request;
        if let Some(header) = &self.idempotency_header
            && let Ok(key) = HeaderValue::from_str(key)
        {
            request.headers_mut().insert(header, key);
        }
        let Answer { response, address } = self.send(address, request, doing).await?;
        let failure = || response.failure(doing, address);
        match call.verdict(response.status) {
            Verdict::Done => Ok(Outcome::Done),
            Verdict::Gone => Ok(Outcome::Gone),
            Verdict::Retry => Err(RegistryError { kind: RegistryErrorKind::Unavailable, ..failure() }),
            Verdict::Unknown => Err(RegistryError { kind: RegistryErrorKind::Unknown, ..failure() }),
            Verdict::Failed if matches!(response.status.as_u16(), 404 | 410) => {
                let advice =
                    "; if this status means that there is no such instance, say so in the call's statuses";
                let error = failure();
                Ok(Outcome::NotFound(RegistryError { reason: format!("{}{advice}", error.reason), ..error }))
            }
            Verdict::Failed => Err(failure()),
        }
    }

    /// Returns the call for a change.
    fn call(&self, change: &Change) -> Result<&Call, &'static str> {
        let (_, instance) = change.target();
        let call = match change {
            Change::Register(..) => &self.register,
            Change::Deregister(..) => &self.deregister,
            Change::SetInService(..) if instance.in_service => &self.put_into_service,
            Change::SetInService(..) => &self.take_out_of_service,
        };
        let call = call.as_ref().ok_or("the registry has no call for it")?;
        if matches!(change, Change::SetInService(..)) {
            return Ok(call);
        }
        if instance.owner().is_none() {
            return Err("the instance has no mark of an owner");
        }
        // Otherwise it would be in service.
        if matches!(change, Change::Register(..)) && !instance.in_service && !call.names(&Field::InService) {
            return Err("the call does not say that the instance is out of service: name ${inService} in it");
        }
        Ok(call)
    }

    fn is_same(&self, one: &Instance, other: &Instance) -> bool {
        match self.capabilities().by_address {
            true => (&one.host, one.port) == (&other.host, other.port),
            false => one.id == other.id,
        }
    }
}

/// The error of a registry without addresses.
fn no_address(doing: &str) -> RegistryError {
    rejected(doing, "no address", "the registry has no address".to_owned())
}
