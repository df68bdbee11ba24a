//! The objects that sets own: what the watch has delivered, and what own writes have returned since.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::Mutex;

use crate::owned::{SetReference, is_orphan, set_of};
use crate::slim::Slim;

/// Objects of one kind, by the set that controls them. An own write is visible at once, so that nothing is decided on the
/// version before it.
#[derive(Debug)]
pub(crate) struct OwnedCache<K> {
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    /// By what controls them, and the name.
    objects: HashMap<Place, BTreeMap<String, Entry<K>>>,
    /// Where each object is in `objects`, by its UID.
    places: HashMap<String, Place>,
    /// The UIDs of objects that an own write has removed, until the watch says so, and the list at that time.
    removed: HashMap<String, u64>,
    /// The number of lists that were begun.
    list: u64,
    /// True between the begin and the end of a list.
    is_listing: bool,
    /// The latest version that the watch has delivered. It has delivered every event up to it, unless it is listing.
    seen: u64,
}

/// Where an object is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// The set with this UID controls it.
    Set(String),
    /// Nothing controls it. It is in this namespace.
    Orphan(String),
}

impl Place {
    /// Returns the place of an object. `None` if something other than a set controls it.
    fn of(object: &impl ResourceExt) -> Option<Self> {
        match set_of(object) {
            Some(set) => Some(Self::Set(set.uid)),
            None => is_orphan(object).then(|| Self::Orphan(object.namespace().unwrap_or_default())),
        }
    }
}

#[derive(Debug)]
struct Entry<K> {
    object: Arc<K>,
    /// The last list that was begun before it was stored or seen.
    list: u64,
}

/// What a list has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The number of objects of sets.
    pub(crate) objects: usize,
    /// The sets of objects that were stored and do not exist any more.
    pub(crate) lost_by: Vec<SetReference>,
}

impl<K> Default for OwnedCache<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                objects: HashMap::new(),
                places: HashMap::new(),
                removed: HashMap::new(),
                list: 0,
                is_listing: false,
                seen: 0,
            }),
        }
    }
}

impl<K: Slim> OwnedCache<K> {
    /// Returns the objects of a set, in the order of their names.
    pub(crate) fn of(&self, set: &str) -> Vec<Arc<K>> {
        self.at(&Place::Set(set.to_owned()))
    }

    /// Returns the objects of a namespace that nothing controls.
    pub(crate) fn orphans(&self, namespace: &str) -> Vec<Arc<K>> {
        self.at(&Place::Orphan(namespace.to_owned()))
    }

    fn at(&self, place: &Place) -> Vec<Arc<K>> {
        let state = self.state.lock();
        let objects = state.objects.get(place);
        objects.into_iter().flat_map(BTreeMap::values).map(|entry| Arc::clone(&entry.object)).collect()
    }

    /// Stores what the watch delivers, unless a newer version is stored or the object was removed.
    pub(crate) fn deliver(&self, mut object: K) {
        object.slim();
        let mut state = self.state.lock();
        state.see(&object);
        state.store(object);
    }

    /// Stores what an own write has returned, as [`Self::deliver`] does. The watch may have delivered the write before, and
    /// also that the object was deleted since.
    pub(crate) fn store(&self, mut object: K) {
        object.slim();
        let mut state = self.state.lock();
        let was_deleted = !state.is_listing && version(&object).is_some_and(|version| version <= state.seen);
        if !was_deleted || state.entry_of(&object).is_some() {
            state.store(object);
        }
    }

    /// Returns the set that controls the version of an object that is stored.
    pub(crate) fn stored_set(&self, object: &K) -> Option<SetReference> {
        self.state.lock().entry_of(object).and_then(|entry| set_of(&*entry.object))
    }

    /// Removes an object, as the watch says.
    pub(crate) fn delete(&self, object: &K) {
        let mut state = self.state.lock();
        state.see(object);
        state.removed.remove(&object.uid().unwrap_or_default());
        state.forget(object);
    }

    /// Removes an object after an own write. What the watch delivers of it later is ignored.
    pub(crate) fn removed(&self, object: &K) {
        let mut state = self.state.lock();
        if state.forget(object) {
            let list = state.list;
            state.removed.insert(object.uid().unwrap_or_default(), list);
        }
    }

    /// Begins a list.
    pub(crate) fn begin_list(&self) {
        let mut state = self.state.lock();
        state.list += 1;
        state.is_listing = true;
        // The versions of an etcd that was restored begin again.
        state.seen = 0;
    }

    /// Ends a list. Objects that were neither listed nor written since it began do not exist.
    pub(crate) fn end_list(&self) -> Listed {
        let mut state = self.state.lock();
        state.is_listing = false;
        let State { objects, places, removed, list, .. } = &mut *state;
        let mut lost_by = Vec::new();
        for objects in objects.values_mut() {
            let mut lost = None;
            objects.retain(|_, entry| {
                let stays = entry.list == *list;
                if !stays {
                    places.remove(&entry.object.uid().unwrap_or_default());
                    lost = Some(Arc::clone(&entry.object));
                }
                stays
            });
            lost_by.extend(lost.and_then(|object| set_of(&*object)));
        }
        objects.retain(|_, objects| !objects.is_empty());
        removed.retain(|_, at| at == list);
        let of_sets = objects.iter().filter(|(place, _)| matches!(place, Place::Set(_)));
        Listed { objects: of_sets.map(|(_, objects)| objects.len()).sum(), lost_by }
    }
}

impl<K: Slim> State<K> {
    /// Records the version of an object that the watch delivers. Events come in the order of versions, and listed objects do
    /// not.
    fn see(&mut self, object: &K) {
        self.seen = self.seen.max(version(object).unwrap_or_default());
    }

    /// Stores an object, unless a newer version is stored or it was removed.
    fn store(&mut self, object: K) {
        let uid = object.uid().unwrap_or_default();
        if self.removed.contains_key(&uid) {
            return;
        }
        let list = self.list;
        if let Some(stored) = self.entry_of(&object)
            && !is_newer(&object, &*stored.object)
        {
            stored.list = list;
            return;
        }
        self.forget(&object);
        let Some(place) = Place::of(&object) else { return };
        let (name, entry) = (object.name_any(), Entry { object: Arc::new(object), list });
        self.places.insert(uid, place.clone());
        let replaced = self.objects.entry(place).or_default().insert(name, entry);
        // Another object had the name.
        if let Some(uid) = replaced.and_then(|entry| entry.object.uid()) {
            self.places.remove(&uid);
        }
    }

    /// Returns the entry of an object, whatever controlled it before.
    fn entry_of(&mut self, object: &K) -> Option<&mut Entry<K>> {
        let place = self.places.get(&object.uid()?)?;
        self.objects.get_mut(place)?.get_mut(&object.name_any())
    }

    /// Removes an object, whatever controls it. Returns true if it was there.
    fn forget(&mut self, object: &K) -> bool {
        let Some(place) = self.places.remove(&object.uid().unwrap_or_default()) else { return false };
        if let Some(objects) = self.objects.get_mut(&place) {
            objects.remove(&object.name_any());
            if objects.is_empty() {
                self.objects.remove(&place);
            }
        }
        true
    }
}

/// Returns true if `one` replaces `other`: it is another object, or a later version.
fn is_newer(one: &impl ResourceExt, other: &impl ResourceExt) -> bool {
    one.uid() != other.uid() || version(one) >= version(other)
}

fn version(object: &impl ResourceExt) -> Option<u64> {
    object.resource_version()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::Pod;

    fn pod(name: &str, version: &str) -> Pod {
        let owner = json!({
            "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "s", "uid": "set", "controller": true
        });
        let metadata = json!({
            "name": name, "uid": format!("uid-{name}"), "resourceVersion": version, "ownerReferences": [owner]
        });
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn versions(cache: &OwnedCache<Pod>) -> Vec<String> {
        cache.of("set").iter().filter_map(|pod| pod.resource_version()).collect()
    }

    #[test]
    fn an_own_write_is_not_lost_to_an_older_event() {
        let cache = OwnedCache::default();
        cache.store(pod("a", "5"));
        cache.store(pod("a", "9"));
        cache.store(pod("a", "7"));
        assert_eq!(versions(&cache), ["9"]);
        cache.removed(&pod("a", "9"));
        cache.store(pod("a", "7"));
        assert_eq!(versions(&cache), Vec::<String>::new(), "it is gone");
        cache.delete(&pod("a", "10"));
        cache.store(pod("b", "11"));
        assert_eq!(versions(&cache), ["11"]);
    }

    #[test]
    fn an_answer_that_comes_after_the_deletion_brings_nothing_back() {
        let cache = OwnedCache::default();
        cache.deliver(pod("a", "5"));
        cache.deliver(pod("a", "7"));
        cache.delete(&pod("a", "8"));
        cache.store(pod("a", "7"));
        assert!(versions(&cache).is_empty(), "the own write was version 7");
        cache.store(pod("new", "9"));
        assert_eq!(versions(&cache), ["9"], "the watch has not delivered it yet");
        cache.begin_list();
        cache.deliver(pod("listed", "12"));
        cache.store(pod("written", "11"));
        assert_eq!(versions(&cache), ["12", "9", "11"], "it may be listed next");
        cache.end_list();
        cache.store(pod("b", "10"));
        assert_eq!(versions(&cache), ["12", "11"], "it was not listed");
    }

    #[test]
    fn an_object_can_leave_its_set_and_come_back() {
        let orphan = |version| {
            let mut orphan = pod("a", version);
            orphan.metadata.owner_references = None;
            orphan
        };
        let cache = OwnedCache::default();
        cache.store(pod("a", "5"));
        cache.store(orphan("6"));
        assert_eq!((versions(&cache).len(), cache.orphans("").len()), (0, 1));
        cache.store(pod("a", "5"));
        assert_eq!((versions(&cache).len(), cache.orphans("").len()), (0, 1), "an older version");
        cache.store(pod("a", "7"));
        assert_eq!((versions(&cache).len(), cache.orphans("").len()), (1, 0));
        cache.store(orphan("8"));
        cache.delete(&orphan("9"));
        assert_eq!((versions(&cache).len(), cache.orphans("").len()), (0, 0));
    }

    #[test]
    fn a_name_is_used_again() {
        let second = |version| {
            let mut pod = pod("a", version);
            pod.metadata.uid = Some("second".to_owned());
            pod
        };
        let cache = OwnedCache::default();
        cache.store(pod("a", "5"));
        cache.store(second("7"));
        cache.delete(&pod("a", "6"));
        assert_eq!(versions(&cache), ["7"]);
        cache.delete(&second("8"));
        assert_eq!(versions(&cache), Vec::<String>::new());
    }

    #[test]
    fn a_list_keeps_what_was_written_meanwhile() {
        let cache = OwnedCache::default();
        cache.store(pod("gone", "1"));
        cache.begin_list();
        cache.store(pod("listed", "2"));
        cache.store(pod("written", "8"));
        let set = set_of(&pod("gone", "1")).unwrap();
        assert_eq!(cache.end_list(), Listed { objects: 2, lost_by: vec![set.clone()] });
        assert_eq!(versions(&cache), ["2", "8"]);
        cache.begin_list();
        let listed = Listed { objects: 0, lost_by: vec![set] };
        assert_eq!(cache.end_list(), listed, "lost events do not leave objects behind");
        cache.begin_list();
        assert_eq!(cache.end_list(), Listed::default());
    }

    #[test]
    fn the_set_that_loses_an_object_is_known() {
        let cache = OwnedCache::default();
        cache.store(pod("a", "1"));
        let mut taken = pod("a", "2");
        taken
            .metadata
            .owner_references
            .iter_mut()
            .flatten()
            .for_each(|owner| owner.kind = "ReplicaSet".to_owned());
        assert_eq!(cache.stored_set(&taken).map(|set| set.name), Some("s".to_owned()));
        cache.store(taken.clone());
        assert_eq!(cache.stored_set(&taken), None);
        assert!(cache.of("set").is_empty());
    }
}
