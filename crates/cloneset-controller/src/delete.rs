//! The deletion of an object that a set owns.

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};

use crate::cache::OwnedCache;
use crate::errors::{SetError, call};
use crate::slim::Slim;

/// Deletes an object, and has the cache know it. `what` is a verb phrase such as `delete pod`, and `name` names the object in
/// errors. An object that is gone already is no error.
///
/// # Errors
/// Fails if the request fails.
pub(crate) async fn delete<K: Slim>(
    api: &Api<K>,
    cache: &OwnedCache<K>,
    object: &K,
    (what, name): (&'static str, &str),
    preconditions: Preconditions,
) -> Result<(), SetError> {
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match call(what, name, api.delete(&object.name_any(), &params)).await {
        Ok(answer) => match answer.left() {
            Some(terminating) => cache.store(terminating),
            None => cache.removed(object),
        },
        Err(error) if error.code() == Some(404) => cache.removed(object),
        Err(error) => return Err(error),
    }
    Ok(())
}
