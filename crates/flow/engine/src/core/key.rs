//! The keys that have work. At any time a key has at most one open run across all workflows; a workflow may allow parallel
//! runs (`exclusion`). Rows that arrive meanwhile wait here and are merged.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};
use honeyflow_event::{Key, Name};
use smallvec::SmallVec;

use super::plan::{EntityId, SourceId};
use crate::slots::{Slot, Slots};

pub(crate) struct KeyState {
    pub source: SourceId,
    pub entity: EntityId,
    pub entity_name: Name,
    pub tenant: Name,
    pub key: Key,
    /// The open runs.
    pub open: SmallVec<[Slot; 1]>,
    /// The waiting rows, by workflow.
    pub owed: SmallVec<[OwedRows; 1]>,
    /// Rows stayed in the outbox because this key already has the maximum number of rows in memory.
    pub overflowed: bool,
}

/// Rows for which one workflow has not run yet.
pub(crate) struct OwedRows {
    /// Its index in the plan.
    pub workflow: usize,
    pub rows: SmallVec<[Slot; 2]>,
}

#[derive(Default)]
pub(crate) struct Keys {
    slots: Slots<KeyState>,
    table: HashTable<Slot>,
    hasher: DefaultHashBuilder,
}

impl Keys {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    fn hash(hasher: &DefaultHashBuilder, source: SourceId, entity: EntityId, tenant: &str, key: &str) -> u64 {
        let mut state = hasher.build_hasher();
        (source, entity, tenant, key).hash(&mut state);
        std::hash::Hasher::finish(&state)
    }

    pub fn find(&self, source: SourceId, entity: EntityId, tenant: &str, key: &str) -> Option<Slot> {
        let hash = Self::hash(&self.hasher, source, entity, tenant, key);
        self.table
            .find(hash, |slot| {
                self.slots.get(*slot).is_some_and(|state| {
                    state.entity == entity && state.source == source && *state.key == *key && *state.tenant == *tenant
                })
            })
            .copied()
    }

    pub fn find_or_insert(
        &mut self,
        source: SourceId,
        (entity, entity_name): (EntityId, &Name),
        tenant: &Name,
        key: &Key,
    ) -> Slot {
        if let Some(slot) = self.find(source, entity, tenant, key) {
            return slot;
        }
        let slot = self.slots.insert(KeyState {
            source,
            entity,
            entity_name: entity_name.clone(),
            tenant: tenant.clone(),
            key: key.clone(),
            open: SmallVec::new(),
            owed: SmallVec::new(),
            overflowed: false,
        });
        let hash = Self::hash(&self.hasher, source, entity, tenant, key);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.table.insert_unique(hash, slot, |slot| {
            let state = slots.get(*slot).expect("the table holds live keys only");
            Self::hash(hasher, state.source, state.entity, &state.tenant, &state.key)
        });
        slot
    }

    pub fn get(&self, slot: Slot) -> &KeyState {
        self.slots.get(slot).expect("a key lives while rows or runs name it")
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut KeyState> {
        self.slots.get_mut(slot)
    }

    /// Removes the key if it has no open run and no owed row.
    pub fn release(&mut self, slot: Slot) {
        let Some(state) = self.slots.get(slot) else { return };
        if !state.open.is_empty() || !state.owed.is_empty() {
            return;
        }
        let hash = Self::hash(&self.hasher, state.source, state.entity, &state.tenant, &state.key);
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        self.slots.remove(slot);
    }

    pub fn forget_source(&mut self, source: SourceId) {
        let gone: Vec<Slot> =
            self.slots.iter().filter(|(_, state)| state.source == source).map(|(slot, _)| slot).collect();
        for slot in gone {
            if let Some(state) = self.slots.get_mut(slot) {
                state.open.clear();
                state.owed.clear();
            }
            self.release(slot);
        }
    }
}
