//! The maximum number of lists of hooks that a replica holds at the same time.

use tonic::Status;

use super::stream_limit::{CountedStream, StreamLimit};

/// The maximum number of lists of hooks of a replica that are made or not read yet. Each needs memory for all hooks of a
/// namespace, or of the cluster.
const MAX_LISTS: usize = 16;
/// The maximum number of these lists of one user.
const MAX_LISTS_OF_USER: usize = 4;
/// The maximum number of these lists of the hooks of one namespace. A team has as many users as it likes.
const MAX_LISTS_OF_NAMESPACE: usize = 4;
/// The maximum number of these lists of the hooks of namespaces together. The others need rights in the cluster.
const MAX_LISTS_OF_NAMESPACES: usize = MAX_LISTS / 2;

/// Counts lists by user, and those of the hooks of a namespace also by namespace.
pub(super) struct ListLimit {
    all: StreamLimit,
    of_namespaces: StreamLimit,
}

impl Default for ListLimit {
    fn default() -> Self {
        Self {
            all: StreamLimit::new("lists of hooks", MAX_LISTS, MAX_LISTS_OF_USER),
            of_namespaces: StreamLimit::new(
                "lists of the hooks of namespaces",
                MAX_LISTS_OF_NAMESPACES,
                MAX_LISTS_OF_NAMESPACE,
            ),
        }
    }
}

/// A counted list, until it is dropped.
pub(super) type CountedList = (CountedStream, Option<CountedStream>);

impl ListLimit {
    /// Counts a list that `user` asks for, until the returned value is dropped.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the maximum of the user, of the namespace, of all namespaces or of the replica is reached.
    pub(super) fn acquire(&self, user: &str, namespace: Option<&str>) -> Result<CountedList, Status> {
        let of_user = self.all.acquire(Some(user))?;
        let of_namespace = namespace.map(|namespace| self.of_namespaces.acquire(Some(namespace)));
        Ok((of_user, of_namespace.transpose()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all places that five users find for `namespace`.
    fn fill(limit: &ListLimit, namespace: &str, held: &mut Vec<CountedList>) -> Status {
        let users = (0..5).map(|user| format!("{namespace}-{user}"));
        let lists = users.flat_map(|user| std::iter::repeat_n(user, MAX_LISTS_OF_USER));
        let refused = lists.filter_map(|user| match limit.acquire(&user, Some(namespace)) {
            Ok(counted) => {
                held.push(counted);
                None
            }
            Err(refused) => Some(refused),
        });
        refused.last().unwrap()
    }

    #[test]
    fn the_users_of_namespaces_can_not_use_up_the_lists_of_others() {
        let (limit, mut held) = (ListLimit::default(), Vec::new());
        let refused = fill(&limit, "shop", &mut held);
        assert_eq!(held.len(), MAX_LISTS_OF_NAMESPACE);
        assert!(refused.message().contains("4 lists of the hooks of namespaces for shop"), "{refused}");
        // Those of another namespace have places.
        let refused = fill(&limit, "bank", &mut held);
        assert_eq!(held.len(), MAX_LISTS_OF_NAMESPACES);
        assert!(refused.message().contains("8 lists of the hooks of namespaces,"), "{refused}");
        // A refused list takes no place, and lists of all hooks have half of the places.
        let all: Vec<_> =
            (0..8).map(|user| limit.acquire(&format!("cluster-{user}"), None).unwrap()).collect();
        let refused = limit.acquire("another", None).unwrap_err();
        assert!(refused.message().contains("16 lists of hooks,"), "{refused}");
        drop((held, all));
        limit.acquire("shop-0", Some("shop")).unwrap();
    }
}
