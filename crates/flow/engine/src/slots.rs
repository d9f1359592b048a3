//! A slab with generations: a [`Slot`] that was freed does not reach the value that later fills the same place.

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot {
    index: u32,
    generation: u32,
}

pub struct Slots<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn insert(&mut self, value: T) -> Slot {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.1 = Some(value);
            return Slot { index, generation: entry.0 };
        }
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 slots, every limit is far below");
        self.entries.push((0, Some(value)));
        Slot { index, generation: 0 }
    }

    pub fn get(&self, slot: Slot) -> Option<&T> {
        self.entries.get(slot.index as usize).filter(|entry| entry.0 == slot.generation)?.1.as_ref()
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.entries.get_mut(slot.index as usize).filter(|entry| entry.0 == slot.generation)?.1.as_mut()
    }

    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let entry = self.entries.get_mut(slot.index as usize).filter(|entry| entry.0 == slot.generation)?;
        let value = entry.1.take()?;
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(slot.index);
        Some(value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, (generation, value))| {
            let index = u32::try_from(index).ok()?;
            value.as_ref().map(|value| (Slot { index, generation: *generation }, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_does_not_reach_the_value_that_fills_it_again() {
        let mut slots = Slots::default();
        let first = slots.insert("a");
        assert_eq!(slots.remove(first), Some("a"));
        let second = slots.insert("b");
        assert_eq!((slots.get(first), slots.get(second)), (None, Some(&"b")));
        assert_eq!((slots.remove(first), slots.len()), (None, 1));
    }
}
