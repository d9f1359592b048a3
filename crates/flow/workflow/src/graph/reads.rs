//! Which outputs are read: an expression may read only steps that have ended before it, and an output that no step or
//! expression reads need not be stored.

/// For each step, the set of steps before it, as bits. Built only if an expression reads more than its direct needs.
pub(super) struct Ancestors {
    words: usize,
    bits: Vec<u64>,
}

impl Ancestors {
    pub(super) fn new(needs: &[Vec<usize>], order: &[usize]) -> Ancestors {
        let words = needs.len().div_ceil(64);
        let mut ancestors = Ancestors { words, bits: vec![0; words * needs.len()] };
        for step in order {
            for need in &needs[*step] {
                for word in 0..words {
                    let inherited = ancestors.bits[need * words + word];
                    ancestors.bits[step * words + word] |= inherited;
                }
                ancestors.bits[step * words + need / 64] |= 1 << (need % 64);
            }
        }
        ancestors
    }

    pub(super) fn contains(&self, step: usize, ancestor: usize) -> bool {
        self.bits[step * self.words + ancestor / 64] >> (ancestor % 64) & 1 == 1
    }

    pub(super) fn ancestors_of(&self, step: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.words * 64).filter(move |ancestor| self.contains(step, *ancestor))
    }
}
