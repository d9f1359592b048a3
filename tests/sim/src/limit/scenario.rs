//! The scenarios, each with what is promised of it.

use super::load::Load;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Turn {
    None,
    /// So many nodes from the middle of the run on.
    Nodes(usize),
    /// Half the limit from the middle of the run on.
    Halved,
    /// The store is away for ten seconds of every sixty.
    StoreDown,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub load: Load,
    /// Of the limit.
    pub demand: f64,
    pub nodes: usize,
    pub turn: Turn,
    /// Of what one central bucket admits.
    pub share_min: f64,
    /// Of ten seconds of the limit.
    pub window_max: f64,
}

const fn scenario(name: &'static str, load: Load, demand: f64, window_max: f64) -> Scenario {
    Scenario { name, load, demand, nodes: 20, turn: Turn::None, share_min: 0.96, window_max }
}

pub const SCENARIOS: &[Scenario] = &[
    scenario("even", Load::Even, 1.5, 1.02),
    scenario("zipf", Load::Zipf, 1.0, 1.02),
    scenario("one-hot", Load::OneHot, 0.9, 0.95),
    scenario("hot-pair", Load::HotPair, 0.9, 0.95),
    scenario("bursts", Load::Bursts, 0.8, 0.85),
    Scenario { nodes: 10, turn: Turn::Nodes(40), ..scenario("grow", Load::Even, 2.0, 1.02) },
    Scenario { nodes: 40, turn: Turn::Nodes(10), ..scenario("shrink", Load::Even, 2.0, 1.02) },
    Scenario { nodes: 40, ..scenario("start-at-once", Load::Even, 2.0, 1.02) },
    Scenario { turn: Turn::Halved, ..scenario("halved", Load::Even, 1.5, 1.02) },
    Scenario { turn: Turn::StoreDown, share_min: 0.93, ..scenario("store-down", Load::Even, 1.5, 1.06) },
];
