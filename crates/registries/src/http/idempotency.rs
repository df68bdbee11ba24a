//! Keys by which a server recognises a repeated request.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::instance::ServiceKey;
use crate::registry::Change;

/// The greatest number of changes with an open result.
const MAX_OPEN: usize = 10_000;

/// The keys of changes whose result is open. A change keeps its key while it is repeated. The same change gets a new key
/// once its result is known, or another change of the instance was begun: a server that has seen the key would do nothing,
/// although the instance has changed in between.
#[derive(Debug, Default)]
pub(super) struct IdempotencyKeys {
    open: Mutex<HashMap<Target, (Change, String)>>,
}

/// The service, the id, the host and the port.
type Target = (ServiceKey, String, String, u16);

fn target(change: &Change) -> Target {
    let (service, instance) = change.target();
    (service.clone(), instance.id.clone(), instance.host.clone(), instance.port)
}

impl IdempotencyKeys {
    /// Returns the key of a change.
    pub(super) fn key(&self, change: &Change) -> String {
        let mut open = self.open.lock();
        let target = target(change);
        match open.get(&target) {
            Some((begun, key)) if begun == change => return key.clone(),
            _ => {}
        }
        if open.len() >= MAX_OPEN {
            // Repeated changes get new keys, which costs a second request with the same effect.
            open.clear();
        }
        let key = format!("{:032x}", fastrand::u128(..));
        open.insert(target, (change.clone(), key.clone()));
        key
    }

    /// Forgets the key of a change whose result is known.
    pub(super) fn settled(&self, change: &Change) {
        self.open.lock().remove(&target(change));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::example;

    #[test]
    fn a_repeated_change_keeps_its_key() {
        let (service, instance) = example();
        let keys = IdempotencyKeys::default();
        let register = Change::Register(service.clone(), instance.clone());
        let first = keys.key(&register);
        assert_eq!((first.len(), keys.key(&register)), (32, first.clone()));
        let other = crate::Instance { id: "web-2".to_owned(), ..instance.clone() };
        assert_ne!(keys.key(&Change::Register(service.clone(), other)), first);
        assert_eq!(keys.key(&register), first);

        // Out of service and back: the second registration is not a repetition of the first.
        let deregister = Change::Deregister(service, instance);
        assert_ne!(keys.key(&deregister), first);
        assert_ne!(keys.key(&register), first);

        let before = keys.key(&register);
        keys.settled(&register);
        assert_ne!(keys.key(&register), before);
    }
}
