//! Random graphs and outcomes, compared with a direct implementation of the tables that shares no code with the run.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::super::*;
use crate::definition::{Definition, Need, StepDefinition, Trigger};
use crate::graph::compile;
use crate::sample;

const TRIGGERS: [Trigger; 6] = [
    Trigger::AllSuccess,
    Trigger::NoneFailed,
    Trigger::OneSuccess,
    Trigger::AllDone,
    Trigger::OneFailed,
    Trigger::AllFailed,
];

#[derive(Clone, Debug)]
struct Case {
    definition: Definition,
    /// How each step ends if it runs.
    ends: Vec<End>,
    /// Chooses one of the ready steps.
    choices: Vec<u16>,
    /// The row is gone from the beginning.
    missing: bool,
}

/// Needs point backwards, so that there is no cycle; names are shuffled, so that the order of names does not help.
fn case(steps: std::ops::Range<usize>) -> impl Strategy<Value = Case> {
    let step = (
        proptest::collection::vec((any::<u16>(), 0..6_u8), 0..5),
        0..6_usize,
        (0..5_u8, 0..4_u8, 0..4_u8, 0..4_u8),
        0..10_u8,
        any::<u16>(),
    );
    (proptest::collection::vec(step, steps), 0..4_u8).prop_map(|(steps, missing)| {
        let definition = Definition::new("book");
        let mut case = Case { definition, ends: Vec::new(), choices: Vec::new(), missing: missing == 0 };
        for (n, (needs, trigger, (optional, forgives, sink, on_missing), end, choice)) in steps.into_iter().enumerate()
        {
            let kind = if sink == 0 { "sink" } else { "work" };
            let mut step = StepDefinition::new(name(n), kind);
            let trigger = TRIGGERS[trigger];
            let mut chosen = BTreeMap::new();
            for (need, edge) in needs.into_iter().filter(|_| n > 0) {
                // near steps, so that the graphs are deep
                let need = n - 1 - usize::from(need) % n.min(8);
                let plain = matches!(trigger, Trigger::OneFailed | Trigger::AllFailed);
                let on = [Edge::Done, Edge::Failure, Edge::Success][usize::from(edge).min(2)];
                chosen.entry(need).or_insert(if plain { Edge::Success } else { on });
            }
            step.needs = chosen.into_iter().map(|(need, on)| Need { step: name(need).into(), on }).collect();
            step.trigger = if step.needs.is_empty() { Trigger::AllSuccess } else { trigger };
            step.optional = optional == 0;
            step.forgives = forgives == 0;
            step.on_missing_run = on_missing == 0;
            case.definition.steps.push(step);
            case.ends.push(match end {
                0..=1 => End::Failed,
                2..=3 => End::Skipped,
                _ => End::Succeeded,
            });
            case.choices.push(choice);
        }
        case
    })
}

fn name(n: usize) -> String {
    format!("s{}_{n}", n * 7919 % 101)
}

/// Returns the letter that a trigger sees.
fn mapped(end: State, optional: bool, on: Edge) -> char {
    match (on, end) {
        (Edge::Done, _) => 'S',
        (Edge::Failure, State::Failed | State::Blocked | State::Cancelled) => 'S',
        (Edge::Failure, _) => 'K',
        (Edge::Success, State::Succeeded) => 'S',
        (Edge::Success, State::Skipped) => 'K',
        (Edge::Success, State::Failed) if optional => 'S',
        (Edge::Success, State::Failed) => 'F',
        (Edge::Success, _) => 'B',
    }
}

/// Returns the raw letters, for the triggers that look for failures.
fn raw(end: State) -> char {
    match end {
        State::Succeeded => 'S',
        State::Skipped => 'K',
        State::Failed => 'F',
        _ => 'B',
    }
}

/// Applies the six rows of the specification; `None`: the step runs.
fn row(trigger: Trigger, seen: &str) -> Option<State> {
    let some = |letters: &str| seen.chars().any(|letter| letters.contains(letter));
    let all = |letters: &str| seen.chars().all(|letter| letters.contains(letter));
    let (runs, skipped) = match trigger {
        Trigger::AllSuccess => (all("S"), !some("FB") && some("K")),
        Trigger::NoneFailed => (!some("FB") && some("S"), all("K")),
        Trigger::OneSuccess => (some("S"), !some("FB")),
        Trigger::AllDone => (true, false),
        Trigger::OneFailed => (some("FB"), true),
        Trigger::AllFailed => (all("FB"), true),
    };
    match (runs, skipped) {
        (true, _) => None,
        (false, true) => Some(State::Skipped),
        (false, false) => Some(State::Blocked),
    }
}

/// Returns the states of all steps, in the order of the definition, which is topological.
fn read_states(case: &Case) -> Vec<State> {
    let position = |name: &str| case.definition.steps.iter().position(|step| &*step.name == name).unwrap();
    let mut states: Vec<State> = Vec::new();
    for (n, step) in case.definition.steps.iter().enumerate() {
        let seen: String = step
            .needs
            .iter()
            .map(|need| {
                let need_at = position(&need.step);
                match step.trigger {
                    Trigger::OneFailed | Trigger::AllFailed => raw(states[need_at]),
                    _ => {
                        let need_step = &case.definition.steps[need_at];
                        match mapped(states[need_at], need_step.optional, need.on) {
                            // it would have passed if it had been decided later
                            'K' if need.on == Edge::Success && case.missing && !need_step.on_missing_run => 'S',
                            letter => letter,
                        }
                    }
                }
            })
            .collect();
        let decided = if step.needs.is_empty() { None } else { row(step.trigger, &seen) };
        states.push(decided.unwrap_or(match case.ends[n] {
            End::Succeeded => State::Succeeded,
            End::Failed => State::Failed,
            End::Skipped => State::Skipped,
        }));
    }
    states
}

fn read_verdict(case: &Case, states: &[State]) -> Verdict {
    let steps = &case.definition.steps;
    // recursion from the start, while the run goes from the end: slow and simple
    fn forgiven(case: &Case, states: &[State], n: usize) -> bool {
        let steps = &case.definition.steps;
        (0..steps.len()).any(|dependent| {
            let needs_it = steps[dependent].needs.iter().any(|need| need.step == steps[n].name);
            let kind = (states[dependent], steps[dependent].forgives);
            needs_it
                && (kind == (State::Succeeded, true) || (kind.0 == State::Blocked && forgiven(case, states, dependent)))
        })
    }
    let fails = (0..steps.len()).any(|n| {
        let counts = states[n] == State::Failed || (states[n] == State::Blocked && &*steps[n].kind == "sink");
        counts && !steps[n].optional && !forgiven(case, states, n)
    });
    if fails { Verdict::Failed } else { Verdict::Succeeded }
}

fn compare(case: &Case) -> Result<bool, TestCaseError> {
    // a graph with an unreachable step is refused, so it has no runs
    let Ok(graph) = compile(&case.definition, 1, &sample::catalogue()) else { return Ok(false) };
    let expected = read_states(case);
    let verdict = read_verdict(case, &expected);
    // four orders: first ready first, last ready first, and two random ones
    for way in 0..4_u64 {
        let mut ready = Vec::new();
        let mut run = Run::begin(&graph, &mut ready);
        if case.missing {
            run.set_missing();
        }
        let mut ended = Vec::new();
        let mut turn = 0_usize;
        while !ready.is_empty() {
            let choice = usize::from(case.choices[turn % case.choices.len()]);
            turn += 1;
            let at = match way {
                0 => 0,
                1 => ready.len() - 1,
                2 => choice % ready.len(),
                _ => (choice / 7) % ready.len(),
            };
            let step = ready.remove(at);
            prop_assert_eq!(run.state(&graph, step), State::Ready);
            for (need, _) in graph.needs(step) {
                let state = run.state(&graph, *need);
                prop_assert!(!matches!(state, State::Pending | State::Ready), "a need is {state:?}");
            }
            prop_assert!(run.end(&graph, step, case.ends[usize::from(step)], &mut ready));
            ended.push((step, case.ends[usize::from(step)]));
            prop_assert_eq!(run.ended(&graph), run.verdict(&graph).is_some());
            // a run that is restored from here is in the same state
            if way == 3 && choice % 16 == 0 && !case.missing {
                let mut ready_again = Vec::new();
                let again = Run::restore(&graph, &ended, &mut ready_again);
                for step in graph.ids() {
                    prop_assert_eq!(again.state(&graph, step), run.state(&graph, step));
                }
                ready_again.sort_unstable();
                let mut sorted = ready.clone();
                sorted.sort_unstable();
                prop_assert_eq!(ready_again, sorted);
            }
        }
        let states: Vec<State> = graph.ids().map(|step| run.state(&graph, step)).collect();
        prop_assert_eq!(&states, &expected, "way {}", way);
        prop_assert!(run.ended(&graph));
        prop_assert_eq!(run.verdict(&graph), Some(verdict));
    }
    Ok(true)
}

fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

pub(super) fn run_cases(steps: std::ops::Range<usize>, count: u32) {
    let config =
        ProptestConfig { cases: count, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let compared = std::cell::Cell::new(0_u32);
    let result = runner.run(&case(steps), |case| {
        compared.set(compared.get() + u32::from(compare(&case)?));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(compared.get() > count / 3, "only {} of {count} graphs were valid", compared.get());
}

#[test]
fn wf_41_small_graphs_follow_the_table_in_every_order() {
    run_cases(1..7, cases(60_000));
}

#[test]
fn wf_41_graphs_of_fifty_steps_follow_the_table_in_every_order() {
    run_cases(7..51, cases(20_000));
}

#[test]
fn wf_41_graphs_beyond_one_word_follow_the_table_in_every_order() {
    run_cases(65..140, cases(2000));
}

/// A chain: each step needs the one before.
#[test]
fn wf_19_a_chain_of_ten_thousand_steps_runs() {
    let steps: serde_json::Map<_, _> = (0..10_000)
        .map(|n| {
            let needs = if n == 0 { json!([]) } else { json!([format!("s{}", n - 1)]) };
            (format!("s{n}"), json!({ "use": "work", "needs": needs }))
        })
        .collect();
    let graph = sample::graph(steps.into());
    for end in [End::Succeeded, End::Failed, End::Skipped] {
        let mut ready = Vec::new();
        let mut run = Run::begin(&graph, &mut ready);
        let (mut ends, mut first) = (0, true);
        while let Some(step) = ready.pop() {
            assert!(run.end(&graph, step, if first { end } else { End::Succeeded }, &mut ready));
            (ends, first) = (ends + 1, false);
        }
        assert!(run.ended(&graph));
        assert_eq!(ends, if end == End::Succeeded { 10_000 } else { 1 });
        let verdict = if end == End::Failed { Verdict::Failed } else { Verdict::Succeeded };
        assert_eq!(run.verdict(&graph), Some(verdict));
    }
}

/// A fan: one step, then thousands in parallel, then one.
#[test]
fn wf_19_a_fan_of_ten_thousand_steps_runs() {
    let mut steps: serde_json::Map<_, _> =
        (0..9998).map(|n| (format!("s{n}"), json!({ "use": "work", "needs": ["a"] }))).collect();
    let all: Vec<String> = steps.keys().cloned().collect();
    steps.insert("a".to_owned(), json!({ "use": "work" }));
    steps.insert("z".to_owned(), json!({ "use": "work", "needs": all, "trigger": "none-failed" }));
    let graph = sample::graph(steps.into());
    let mut ready = Vec::new();
    let mut run = Run::begin(&graph, &mut ready);
    let mut ends = 0;
    while let Some(step) = ready.pop() {
        let end = if ends % 2 == 1 { End::Skipped } else { End::Succeeded };
        assert!(run.end(&graph, step, end, &mut ready));
        ends += 1;
    }
    assert_eq!((ends, run.verdict(&graph)), (10_000, Some(Verdict::Succeeded)));
}
