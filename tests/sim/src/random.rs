//! A deterministic random number generator (xorshift64*): one seed gives one sequence.

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // splitmix64, so that neighbouring seeds are unrelated.
        let mut state = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // The generator must not start at 0.
        Random((state ^ (state >> 31)) | 1)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Draws from 0 up to, but not including, `bound`; a bound of 0 counts as 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.draw() >> 11) % bound.max(1)
    }

    /// Draws from `low` up to and including `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Draws from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn per_mille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(from.len() as u64);
        &from[usize::try_from(at).unwrap_or(0)]
    }

    /// Draws small numbers far more often than large ones, like keys in real tables.
    pub fn skewed(&mut self, bound: u64) -> u64 {
        let first = self.below(bound);
        if self.per_mille(300) { self.below(bound.min(4)) } else { first.min(self.below(bound)) }
    }
}
