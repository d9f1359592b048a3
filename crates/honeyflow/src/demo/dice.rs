//! Pseudo-random numbers from a seed, so that every demo with the same seed is the same.

/// A pseudo-random number generator.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    /// Returns a number from 0 to `bound` − 1, evenly distributed.
    pub fn below(&mut self, bound: i64) -> i64 {
        (self.roll() >> 1).cast_signed() % bound.max(1)
    }

    /// Returns one of the words.
    pub fn word<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.roll()).unwrap_or(0) % words.len()]
    }
}
