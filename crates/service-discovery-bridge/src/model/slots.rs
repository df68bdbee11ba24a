//! The slots of the replicas: Leases, of which each replica holds one. A replica that finds none free creates one, up to a
//! maximum.
//!
//! Whether a holder has left is judged by what this replica observes: the time since its Lease last changed, by the clock of
//! this process. The clocks of other machines do not matter. Only a complete list counts as proof that a Lease has not
//! changed: a watch may be silent because its connection is dead.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// A holder whose Lease does not change for this time has left.
pub(crate) const EXPIRY: Duration = Duration::from_secs(12);

/// A slot, as the API server returned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The name of the Lease.
    pub(crate) name: String,
    /// The replica that holds it. `None` if it is free.
    pub(crate) holder: Option<String>,
    /// The time of the last renewal, by the clock of the holder. Only whether it changes matters.
    pub(crate) renewed: Option<Timestamp>,
    /// The resource version, the precondition of writes.
    pub(crate) version: String,
}

/// The next step of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotStep<'s> {
    /// It holds this slot, and renews it.
    Renew(&'s Slot),
    /// It takes this slot, if it still has this version.
    Take(&'s Slot),
    /// It creates the slot with this name.
    Create(&'s str),
    /// Other replicas hold all slots.
    AllTaken,
}

#[derive(Debug)]
struct Observed {
    slot: Slot,
    /// When it was seen to change last.
    changed: Duration,
}

/// The slots that a replica sees.
#[derive(Debug)]
pub(crate) struct SlotTable {
    /// The name of this replica.
    own: String,
    /// The names of all slots that there may be.
    names: Vec<String>,
    slots: BTreeMap<String, Observed>,
    /// When the last complete list began: everything that was written before is known.
    complete: Duration,
}

impl SlotTable {
    /// Returns the table of the replica `own`, before it has seen a slot. `names` are those of all slots that there may be.
    pub(crate) fn new(own: String, names: Vec<String>) -> Self {
        Self { own, names, slots: BTreeMap::new(), complete: Duration::ZERO }
    }

    /// Records a slot that was read at `now`.
    pub(crate) fn observe(&mut self, slot: Slot, now: Duration) {
        match self.slots.get_mut(&slot.name) {
            Some(known) => {
                if (&known.slot.holder, known.slot.renewed) != (&slot.holder, slot.renewed) {
                    known.changed = now;
                }
                known.slot = slot;
            }
            None => {
                self.slots.insert(slot.name.clone(), Observed { slot, changed: now });
            }
        }
    }

    /// Records that a slot was deleted.
    pub(crate) fn forget(&mut self, name: &str) {
        self.slots.remove(name);
    }

    /// Records that the slots with these names, and no others, were in a list that began at `begin`.
    pub(crate) fn complete(&mut self, listed: &HashSet<String>, begin: Duration) {
        self.slots.retain(|name, _| listed.contains(name));
        self.complete = self.complete.max(begin);
    }

    /// Returns whether another replica seems to have left, and only a new list can show whether it has.
    pub(crate) fn is_doubtful(&self, now: Duration) -> bool {
        self.slots.values().any(|observed| {
            let is_held = observed.slot.holder.is_some() && !self.is_own(&observed.slot);
            is_held && !self.is_expired(observed) && now.saturating_sub(observed.changed) >= EXPIRY
        })
    }

    /// Returns the slots that this replica holds.
    pub(crate) fn own(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values().map(|observed| &observed.slot).filter(|slot| self.is_own(slot))
    }

    /// Returns the replicas that share the bindings, sorted. This replica is one until it sees another one in its slot: while
    /// nobody can write, nobody takes over.
    pub(crate) fn members(&self) -> Vec<String> {
        let present = self.slots.values().filter(|it| self.is_own(&it.slot) || !self.is_expired(it));
        let mut members: Vec<String> = present.filter_map(|observed| observed.slot.holder.clone()).collect();
        members.sort();
        members.dedup();
        members
    }

    /// Returns what this replica does next. Slots that were given back are taken before those of replicas that have left.
    /// Each replica begins its search elsewhere, so that replicas that start together want different ones.
    pub(crate) fn step(&self) -> SlotStep<'_> {
        if let Some(slot) = self.own().next() {
            return SlotStep::Renew(slot);
        }
        let free = self.first(|observed| observed.slot.holder.is_none());
        if let Some(slot) = free.or_else(|| self.first(|observed| self.is_expired(observed))) {
            return SlotStep::Take(slot);
        }
        let missing = self.names.iter().find(|name| !self.slots.contains_key(*name));
        missing.map_or(SlotStep::AllTaken, |name| SlotStep::Create(name))
    }

    fn is_own(&self, slot: &Slot) -> bool {
        slot.holder.as_ref() == Some(&self.own)
    }

    fn is_expired(&self, observed: &Observed) -> bool {
        self.complete.saturating_sub(observed.changed) >= EXPIRY
    }

    fn first(&self, is_wanted: impl Fn(&Observed) -> bool) -> Option<&Slot> {
        let wanted = self.slots.values().filter(|observed| is_wanted(observed));
        let rank = |slot: &&Slot| Sha256::digest(format!("{}\n{}", self.own, slot.name));
        wanted.map(|observed| &observed.slot).min_by_key(rank)
    }
}

#[cfg(test)]
mod tests;
