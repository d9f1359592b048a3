//! The progress of a sink's next generation, and the decision what to do next. Pure: no I/O. The progress is stored as
//! a task of the source, so that the next node that opens the index continues from there, and the command that
//! requested the generation can follow it.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

/// The generations are swapped when the lag is at most this.
const LAG_MAX: Duration = Duration::from_secs(5);
/// The longest wait for the lag to shrink. Both generations get the same events, so the current one lags just as much.
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
    /// The number of the generation; none if the build is about to begin.
    pub generation: Option<u64>,
    /// The last request that was received …
    pub asked: Option<String>,
    /// … and whether this build answers it.
    pub is_asked: bool,
    /// For each feed of the sink: how far its table has been read.
    pub positions: BTreeMap<String, Position>,
    pub failure: Option<String>,
    /// A retry would fail again: only a changed configuration or a new request starts the next build.
    pub hopeless: bool,
    /// The hash of what its documents are built from.
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

/// The current state of the index, the store and the configuration.
#[derive(Clone, Default, Debug)]
pub struct BuildState {
    pub served: u64,
    pub building: Option<u64>,
    pub is_outdated: bool,
    /// The word of the last request.
    pub asked: Option<String>,
    pub has_failed: bool,
    pub shape: String,
    /// After a failure: whether the back-off has passed.
    pub may_retry: bool,
    /// The number of feeds whose tables have not been read to the end.
    pub unread: usize,
    /// Events of the build that are still waiting.
    pub left: u64,
    pub lag: Duration,
    /// The time since the last of them was done.
    pub waited: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Rest,
    /// Open the next generation and start reading from the beginning.
    Begin,
    /// Note that the current build also answers a new request.
    Join,
    /// Remove the unfinished generation, because its progress is unknown.
    Discard,
    ReadPage,
    Wait,
    Swap,
    /// Record that the swap has happened.
    NoteServed,
    NoteGivenUp,
}

pub fn decide(progress: &Progress, seen: &BuildState) -> Action {
    let is_asked = seen.asked.is_some() && seen.asked != progress.asked;
    let is_building = progress.phase == Phase::Building;
    match seen.building {
        Some(number) if !is_building || progress.generation != Some(number) => Action::Discard,
        Some(_) if is_asked => Action::Join,
        Some(_) if seen.unread > 0 => Action::ReadPage,
        Some(_) if seen.left > 0 => Action::Wait,
        Some(_) if seen.lag <= LAG_MAX || seen.waited >= PATIENCE => Action::Swap,
        Some(_) => Action::Wait,
        None if is_building && progress.generation == Some(seen.served) => Action::NoteServed,
        None if is_building && seen.has_failed => Action::NoteGivenUp,
        None if is_asked => Action::Begin,
        // The build had begun and was lost in a crash.
        None if is_building && progress.is_asked => Action::Begin,
        None if !seen.is_outdated => Action::Rest,
        None if progress.phase == Phase::GivenUp && progress.shape == seen.shape => {
            if seen.may_retry && !progress.hopeless { Action::Begin } else { Action::Rest }
        }
        None => Action::Begin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn building(number: u64) -> Progress {
        Progress { phase: Phase::Building, generation: Some(number), shape: "s".into(), ..Progress::default() }
    }

    fn seen(number: Option<u64>) -> BuildState {
        BuildState { served: 1, building: number, shape: "s".into(), ..BuildState::default() }
    }

    #[test]
    fn ob_75_only_what_is_outdated_or_asked_for_is_built() {
        let idle = Progress::default();
        assert_eq!(decide(&idle, &seen(None)), Action::Rest);
        assert_eq!(decide(&idle, &BuildState { is_outdated: true, ..seen(None) }), Action::Begin);
        let asked = BuildState { asked: Some("a".into()), ..seen(None) };
        assert_eq!(decide(&idle, &asked), Action::Begin);
        let answered = Progress { phase: Phase::Served, asked: Some("a".into()), ..Progress::default() };
        assert_eq!(decide(&answered, &asked), Action::Rest, "a request is answered once");
        assert_eq!(decide(&building(2), &BuildState { asked: Some("a".into()), ..seen(Some(2)) }), Action::Join);
    }

    #[test]
    fn ob_76_a_build_continues_only_from_its_own_position() {
        let unread = BuildState { unread: 1, ..seen(Some(2)) };
        assert_eq!(decide(&building(2), &unread), Action::ReadPage);
        assert_eq!(decide(&building(3), &unread), Action::Discard, "the position belongs to another generation");
        let about_to_begin = Progress { generation: None, ..building(2) };
        assert_eq!(decide(&about_to_begin, &unread), Action::Discard, "a crash between opening and noting it");
        let outdated = BuildState { is_outdated: true, ..seen(None) };
        assert_eq!(decide(&about_to_begin, &outdated), Action::Begin);
        assert_eq!(decide(&building(2), &outdated), Action::Begin, "its folder is gone");
        assert_eq!(decide(&building(2), &seen(None)), Action::Rest, "the configuration was changed back");
        assert_eq!(decide(&Progress { is_asked: true, ..building(2) }, &seen(None)), Action::Begin, "still asked for");
        assert_eq!(decide(&Progress::default(), &unread), Action::Discard);
    }

    #[test]
    fn ob_77_swapped_when_all_is_read_done_and_nearly_current() {
        let at = |unread, left, lag, waited| {
            let (lag, waited) = (Duration::from_secs(lag), Duration::from_secs(waited));
            decide(&building(2), &BuildState { unread, left, lag, waited, ..seen(Some(2)) })
        };
        assert_eq!(at(1, 0, 0, 0), Action::ReadPage);
        assert_eq!(at(0, 1, 0, 90), Action::Wait, "every row must be done first");
        assert_eq!(at(0, 0, 6, 0), Action::Wait);
        assert_eq!(at(0, 0, 5, 0), Action::Swap);
        assert_eq!(at(0, 0, 3600, 60), Action::Swap, "an event that cannot be processed delays both generations alike");
        let swapped = BuildState { served: 2, ..seen(None) };
        assert_eq!(decide(&building(2), &swapped), Action::NoteServed);
    }

    #[test]
    fn ob_77_a_failed_build_is_retried_unless_it_is_hopeless() {
        let failed = BuildState { has_failed: true, is_outdated: true, ..seen(None) };
        assert_eq!(decide(&building(2), &failed), Action::NoteGivenUp);
        let noted = Progress { phase: Phase::GivenUp, ..building(2) };
        assert_eq!(decide(&noted, &failed), Action::Rest);
        assert_eq!(decide(&noted, &BuildState { may_retry: true, ..failed.clone() }), Action::Begin);
        let hopeless = Progress { hopeless: true, ..noted };
        assert_eq!(decide(&hopeless, &BuildState { may_retry: true, ..failed.clone() }), Action::Rest);
        assert_eq!(decide(&hopeless, &BuildState { shape: "other".into(), ..failed.clone() }), Action::Begin);
        assert_eq!(
            decide(&hopeless, &BuildState { asked: Some("a".into()), ..failed }),
            Action::Begin,
            "a request always starts a build"
        );
    }
}
