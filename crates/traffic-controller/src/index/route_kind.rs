//! Kinds of objects that name Services.

use std::fmt::Debug;

/// A kind of object that names Services in its `spec`.
pub(crate) trait RouteKind: Clone + Debug + Send + Sync + 'static {
    const KIND: &'static str;
    const GROUP: &'static str;
    const VERSION: &'static str;
    const PLURAL: &'static str;
    /// True if Kubernetes does not have the kind itself.
    const OPTIONAL: bool;
    /// The number of objects in a page of a list. A page is read as a whole, and tenants can make some kinds large.
    const PAGE_SIZE: u32;
    /// Its index among all such kinds.
    const INDEX: usize;

    /// The keys in `spec` that lead to the Services that it names.
    const PATHS: &'static [&'static [&'static str]];

    /// Returns true if an object with this field `targetType` leads to pods.
    fn leads_to_pods(_target_type: Option<&str>) -> bool {
        true
    }
}
