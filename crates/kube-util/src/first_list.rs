//! The end of a controller whose first list has not arrived.

use std::hash::Hash;

use futures::FutureExt;
use kube::runtime::reflector::{Lookup, Store};
use tokio_util::sync::CancellationToken;

/// Completes on `stop` if the first list of `store` has not arrived yet: kube's controller would keep waiting for it. With
/// the list, this does not complete, because the controller ends by itself after the reconciliations in progress.
pub async fn stopped_before_first_list<K>(store: Store<K>, stop: CancellationToken)
where
    K: Lookup + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    stop.cancelled().await;
    if store.wait_until_ready().now_or_never().is_some() {
        std::future::pending::<()>().await;
    }
}
