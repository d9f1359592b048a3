//! Who reads whose output: an expression may only read steps that have ended before it, and an output that nobody
//! reads need not be kept.

/// For each step, the set of steps before it, as bits. Built only when an expression reads past its direct needs.
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

    pub(super) fn of(&self, step: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.words * 64).filter(move |ancestor| self.contains(step, *ancestor))
    }
}
