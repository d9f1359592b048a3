//! Random numbers that are reproducible from a seed.

use std::time::{Duration, Instant};

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }
}

/// A fixed number of seeds from zero on; or seeds from `FUZZ_SEED` on for `FUZZ_SECONDS` seconds.
pub struct Seeds {
    next: u64,
    end: End,
}

enum End {
    At(u64),
    When(Instant),
}

impl Seeds {
    /// Whether the environment chooses the seeds; then their number is not known.
    pub fn are_chosen() -> bool {
        std::env::var_os("FUZZ_SECONDS").is_some()
    }

    pub fn new(few: u64) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        match number("FUZZ_SECONDS") {
            None => Self { next: 0, end: End::At(few) },
            Some(seconds) => {
                let end = End::When(Instant::now() + Duration::from_secs(seconds));
                Self { next: number("FUZZ_SEED").unwrap_or(0), end }
            }
        }
    }
}

impl Iterator for Seeds {
    type Item = Seed;

    fn next(&mut self) -> Option<Seed> {
        let goes_on = match self.end {
            End::At(end) => self.next < end,
            End::When(by) => Instant::now() < by,
        };
        if !goes_on {
            if matches!(self.end, End::When(_)) {
                println!("seeds up to {}", self.next);
            }
            return None;
        }
        self.next += 1;
        Some(Seed(self.next - 1))
    }
}

/// A seed that prints its number if the test panics while using it.
pub struct Seed(u64);

impl Seed {
    pub fn number(&self) -> u64 {
        self.0
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}
