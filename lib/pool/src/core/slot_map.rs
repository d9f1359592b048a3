//! A map whose keys are never reused: the key of a removed row finds nothing, however late it is used.

use std::num::NonZeroU32;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    index: u32,
    /// Never zero, so that an `Option<Key>` is no larger than a `Key`.
    generation: NonZeroU32,
}

#[derive(Debug)]
pub struct SlotMap<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: NonZeroU32,
    row: Option<T>,
}

impl<T> Default for SlotMap<T> {
    fn default() -> SlotMap<T> {
        SlotMap { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> SlotMap<T> {
    #[inline]
    pub fn insert(&mut self, row: T) -> Key {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.row = Some(row);
            return Key { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 rows");
        self.slots.push(Slot { generation: NonZeroU32::MIN, row: Some(row) });
        Key { index, generation: NonZeroU32::MIN }
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation)?.row.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?.row.as_mut()
    }

    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        let row = slot.row.take()?;
        slot.generation = next(slot.generation);
        self.free.push(key.index);
        Some(row)
    }

    /// Removes a row in place. `remove` would move it out first, and rows are large.
    #[inline]
    pub fn discard(&mut self, key: Key) {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation);
        if let Some(slot) = slot.filter(|slot| slot.row.is_some()) {
            slot.row = None;
            slot.generation = next(slot.generation);
            self.free.push(key.index);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots
            .iter()
            .zip(0..)
            .filter_map(|(slot, index)| Some((Key { index, generation: slot.generation }, slot.row.as_ref()?)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.slots
            .iter_mut()
            .zip(0..)
            .filter_map(|(slot, index)| Some((Key { index, generation: slot.generation }, slot.row.as_mut()?)))
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

fn next(generation: NonZeroU32) -> NonZeroU32 {
    generation.checked_add(1).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_outlives_its_row_and_finds_no_other() {
        let mut slots = SlotMap::default();
        let first = slots.insert("first");
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second");
        assert_ne!(first, second);
        assert_eq!((slots.get(first), slots.get(second)), (None, Some(&"second")));
        assert_eq!((slots.remove(first), slots.len()), (None, 1));
        slots.discard(first);
        assert_eq!(slots.get(second), Some(&"second"));
        slots.discard(second);
        slots.discard(second);
        assert_eq!((slots.get(second), slots.len()), (None, 0));
        assert_ne!(slots.insert("third"), second);
    }
}
