//! The latest calls to a registry, for the traces of operations.

use std::collections::VecDeque;

use parking_lot::Mutex;
use podward_core::UnixNanos;
use podward_registries::{Instance, ServiceKey};

/// The number of calls that are kept.
const KEPT: usize = 1024;

/// A call to a registry.
#[derive(Clone, Debug)]
pub(crate) struct RegistryCall {
    /// Counts the calls, from 1.
    pub(crate) number: u64,
    /// What it does.
    pub(crate) name: &'static str,
    pub(crate) begin: UnixNanos,
    pub(crate) end: UnixNanos,
    /// The address that was read. Writes go to any.
    pub(crate) address: Option<String>,
    /// How many instances were written, or found.
    pub(crate) instances: usize,
    pub(super) about: About,
    pub(super) error: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) enum About {
    /// All instances of a service.
    Service(ServiceKey),
    /// Host, port and error of each.
    Instances(Vec<(String, u16, Option<String>)>),
}

impl RegistryCall {
    /// Returns whether the call was about an instance, or about all of its service.
    pub(crate) fn is_about(&self, service: &ServiceKey, instance: &Instance) -> bool {
        match &self.about {
            About::Service(of) => of == service,
            About::Instances(of) => {
                of.iter().any(|(host, port, _)| (host, *port) == (&instance.host, instance.port))
            }
        }
    }

    /// Returns what failed, for an instance that the call was about.
    pub(crate) fn error(&self, instance: &Instance) -> Option<&str> {
        let of_instance = match &self.about {
            About::Service(_) => None,
            About::Instances(of) => {
                let found =
                    of.iter().find(|(host, port, _)| (host, *port) == (&instance.host, instance.port));
                found.and_then(|(_, _, error)| error.as_deref())
            }
        };
        of_instance.or(self.error.as_deref())
    }
}

/// The latest calls to a registry.
#[derive(Debug, Default)]
pub(crate) struct CallLog(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    last: u64,
    calls: VecDeque<RegistryCall>,
}

impl CallLog {
    /// Returns the calls after the one with the number `after` that were about an instance, in their order.
    pub(crate) fn about(&self, after: u64, service: &ServiceKey, instance: &Instance) -> Vec<RegistryCall> {
        let calls = self.0.lock();
        let wanted =
            calls.calls.iter().filter(|call| call.number > after && call.is_about(service, instance));
        wanted.cloned().collect()
    }

    /// Adds a call, and numbers it.
    pub(super) fn add(&self, mut call: RegistryCall) {
        let mut calls = self.0.lock();
        calls.last += 1;
        call.number = calls.last;
        if calls.calls.len() >= KEPT {
            calls.calls.pop_front();
        }
        calls.calls.push_back(call);
    }
}
