//! The load as a function of time: requests per second of node `n`.

pub const SECOND: u64 = 1_000_000_000;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Load {
    Even,
    /// The n-th node gets a part proportional to 1/n.
    Zipf,
    /// One node gets nine tenths of the requests.
    OneHot,
    /// Two nodes get nine tenths of the requests; every ten seconds it is another pair.
    HotPair,
    /// Two seconds on, two off, each node at its own time.
    Bursts,
    /// One node after the other for half a second each, a pause, then all at once: the worst case for permits in stock.
    Spike,
    /// An even load, but every four seconds there is no request for a third of a second, and then all of them at once.
    Lulls,
}

impl Load {
    /// Requests per second of this node, out of `total` for `nodes` nodes.
    pub fn of(self, node: usize, nodes: usize, total: f64, at_ns: u64) -> f64 {
        let share = |hot: bool, hot_ones: usize| {
            if hot { 0.9 / hot_ones as f64 } else { 0.1 / (nodes - hot_ones) as f64 }
        };
        total
            * match self {
                Load::Even => 1.0 / nodes as f64,
                Load::Zipf => {
                    let sum: f64 = (1..=nodes).map(|rank| 1.0 / rank as f64).sum();
                    1.0 / (node + 1) as f64 / sum
                }
                Load::OneHot => share(node == 0, 1),
                Load::HotPair => {
                    let first = (at_ns / (10 * SECOND) * 2) as usize % nodes;
                    share(node == first || node == (first + 1) % nodes, 2)
                }
                Load::Bursts => {
                    let shifted = at_ns + node as u64 * (4 * SECOND / nodes as u64);
                    if shifted % (4 * SECOND) < 2 * SECOND { 2.0 / nodes as f64 } else { 0.0 }
                }
                Load::Lulls => match at_ns % (4 * SECOND) {
                    at_ns if at_ns < SECOND / 3 => 0.0,
                    at_ns if at_ns < SECOND / 2 => 5.0 / nodes as f64,
                    _ => 1.0 / nodes as f64,
                },
                Load::Spike => match at_ns % (12 * SECOND) {
                    at_ns if at_ns >= 11_500_000_000 => 5.0 / nodes as f64,
                    at_ns if at_ns < 10 * SECOND && (at_ns / (SECOND / 2)) as usize % nodes == node => 1.0,
                    _ => 0.0,
                },
            }
    }

    /// The highest load that the node ever has.
    pub fn peak(self, node: usize, nodes: usize, total: f64) -> f64 {
        match self {
            Load::HotPair => total * 0.45,
            Load::Bursts => total * 2.0 / nodes as f64,
            Load::Spike => total,
            Load::Lulls => total * 5.0 / nodes as f64,
            _ => self.of(node, nodes, total, 0),
        }
    }
}
