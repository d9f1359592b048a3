//! How far the next generation of a sink is, and what follows from it. Pure; kept as a task of the source, so that
//! whoever opens the index next goes on from there, and whoever asked for it can follow.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

/// The remaining lag with which generations are swapped.
const LAG_MAX: Duration = Duration::from_secs(5);
/// Both generations get the same events, so the old one is as far behind as the new one: it is not waited for for ever.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    #[default]
    None,
    Building,
    Served,
    GivenUp,
}

#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    pub phase: Phase,
    /// None: about to be begun.
    pub generation: Option<u64>,
    /// The last request that was heard …
    pub asked: Option<String>,
    /// … and whether this one answers it.
    pub is_asked: bool,
    /// By way into the sink: how far its table has been read.
    pub positions: BTreeMap<String, Position>,
    pub failure: Option<String>,
    /// It would be given up again: only another configuration, or a request, begins the next one.
    pub hopeless: bool,
    /// What its documents are made by.
    pub shape: String,
}

#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Position {
    pub after: Option<String>,
    pub events: u64,
    pub done: bool,
}

impl Progress {
    pub fn events(&self) -> u64 {
        self.positions.values().map(|position| position.events).sum()
    }
}

/// What the index, the store and the configuration say.
#[derive(Clone, Default, Debug)]
pub struct Seen {
    pub served: u64,
    pub building: Option<u64>,
    pub is_outdated: bool,
    /// The last request.
    pub asked: Option<String>,
    pub has_failed: bool,
    pub shape: String,
    /// After a failure: whether it is time to try again.
    pub may_retry: bool,
    /// Ways into the sink whose tables have not been read to the end.
    pub unread: usize,
    /// Events of the build that are still waiting.
    pub left: u64,
    pub lag: Duration,
    /// Since the last of them was done.
    pub waited: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    Rest,
    /// Open the next generation and count from nothing.
    Begin,
    /// Someone asked for what is being built already.
    Join,
    /// Remove what is being built: how far it is is not known.
    Discard,
    ReadPage,
    Wait,
    Swap,
    /// It was swapped, and only that is left to be noted.
    NoteServed,
    NoteGivenUp,
}

pub fn decide(progress: &Progress, seen: &Seen) -> Act {
    let is_asked = seen.asked.is_some() && seen.asked != progress.asked;
    let is_building = progress.phase == Phase::Building;
    match seen.building {
        Some(number) if !is_building || progress.generation != Some(number) => Act::Discard,
        Some(_) if is_asked => Act::Join,
        Some(_) if seen.unread > 0 => Act::ReadPage,
        Some(_) if seen.left > 0 => Act::Wait,
        Some(_) if seen.lag <= LAG_MAX || seen.waited >= PATIENCE => Act::Swap,
        Some(_) => Act::Wait,
        None if is_building && progress.generation == Some(seen.served) => Act::NoteServed,
        None if is_building && seen.has_failed => Act::NoteGivenUp,
        None if is_asked => Act::Begin,
        // begun, and lost by a crash
        None if is_building && progress.is_asked => Act::Begin,
        None if !seen.is_outdated => Act::Rest,
        None if progress.phase == Phase::GivenUp && progress.shape == seen.shape => {
            if seen.may_retry && !progress.hopeless { Act::Begin } else { Act::Rest }
        }
        None => Act::Begin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn building(number: u64) -> Progress {
        Progress { phase: Phase::Building, generation: Some(number), shape: "s".into(), ..Progress::default() }
    }

    fn seen(number: Option<u64>) -> Seen {
        Seen { served: 1, building: number, shape: "s".into(), ..Seen::default() }
    }

    #[test]
    fn ob_75_only_what_is_outdated_or_asked_for_is_built() {
        let idle = Progress::default();
        assert_eq!(decide(&idle, &seen(None)), Act::Rest);
        assert_eq!(decide(&idle, &Seen { is_outdated: true, ..seen(None) }), Act::Begin);
        let asked = Seen { asked: Some("a".into()), ..seen(None) };
        assert_eq!(decide(&idle, &asked), Act::Begin);
        let answered = Progress { phase: Phase::Served, asked: Some("a".into()), ..Progress::default() };
        assert_eq!(decide(&answered, &asked), Act::Rest, "once");
        assert_eq!(decide(&building(2), &Seen { asked: Some("a".into()), ..seen(Some(2)) }), Act::Join);
    }

    #[test]
    fn ob_76_a_build_goes_on_only_if_its_position_is_its_own() {
        let unread = Seen { unread: 1, ..seen(Some(2)) };
        assert_eq!(decide(&building(2), &unread), Act::ReadPage);
        assert_eq!(decide(&building(3), &unread), Act::Discard, "that was another one");
        let about_to_begin = Progress { generation: None, ..building(2) };
        assert_eq!(decide(&about_to_begin, &unread), Act::Discard, "a crash between opening and noting it");
        let outdated = Seen { is_outdated: true, ..seen(None) };
        assert_eq!(decide(&about_to_begin, &outdated), Act::Begin);
        assert_eq!(decide(&building(2), &outdated), Act::Begin, "its folder is gone");
        assert_eq!(decide(&building(2), &seen(None)), Act::Rest, "the configuration was changed back");
        assert_eq!(decide(&Progress { is_asked: true, ..building(2) }, &seen(None)), Act::Begin, "still asked for");
        assert_eq!(decide(&Progress::default(), &unread), Act::Discard);
    }

    #[test]
    fn ob_77_swapped_when_all_is_read_done_and_nearly_current() {
        let at = |unread, left, lag, waited| {
            let (lag, waited) = (Duration::from_secs(lag), Duration::from_secs(waited));
            decide(&building(2), &Seen { unread, left, lag, waited, ..seen(Some(2)) })
        };
        assert_eq!(at(1, 0, 0, 0), Act::ReadPage);
        assert_eq!(at(0, 1, 0, 90), Act::Wait, "every row first");
        assert_eq!(at(0, 0, 6, 0), Act::Wait);
        assert_eq!(at(0, 0, 5, 0), Act::Swap);
        assert_eq!(at(0, 0, 3600, 60), Act::Swap, "an event that cannot be done holds up both alike");
        let swapped = Seen { served: 2, ..seen(None) };
        assert_eq!(decide(&building(2), &swapped), Act::NoteServed);
    }

    #[test]
    fn ob_77_a_build_that_was_given_up_is_tried_again_if_there_is_hope() {
        let failed = Seen { has_failed: true, is_outdated: true, ..seen(None) };
        assert_eq!(decide(&building(2), &failed), Act::NoteGivenUp);
        let noted = Progress { phase: Phase::GivenUp, ..building(2) };
        assert_eq!(decide(&noted, &failed), Act::Rest);
        assert_eq!(decide(&noted, &Seen { may_retry: true, ..failed.clone() }), Act::Begin);
        let hopeless = Progress { hopeless: true, ..noted };
        assert_eq!(decide(&hopeless, &Seen { may_retry: true, ..failed.clone() }), Act::Rest);
        assert_eq!(decide(&hopeless, &Seen { shape: "other".into(), ..failed.clone() }), Act::Begin);
        assert_eq!(decide(&hopeless, &Seen { asked: Some("a".into()), ..failed }), Act::Begin, "who asks is heard");
    }
}
