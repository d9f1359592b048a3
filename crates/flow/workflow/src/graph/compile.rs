//! Compiles a definition to a graph, or reports all its problems.
//!
//! Three of the six triggers are expressed as edges: `one-failed` is `one-success` over `failure` edges, `all-failed`
//! is `all-success` over `failure` edges, `all-done` is `all-success` over `done` edges.

mod build;

use std::collections::{HashMap, HashSet};

use honeyflow_event::Name;

use super::{CompiledOn, Graph, Rule, order, reach, reads::Ancestors};
use crate::catalogue::{Catalogue, Kind, Role, SettingValue};
use crate::definition::{Definition, EDGES_MAX, Edge, Otherwise, STEPS_MAX, StepDefinition, Trigger};
use crate::{
    codes,
    expression::{Expression, template},
    problem::Problem,
};

/// A suggestion compares all names, which is slow; after this many problems there are no more suggestions.
const GUESSES_MAX: usize = 20;

/// Returns the graph, or all problems sorted by place.
pub fn compile(definition: &Definition, version: u32, catalogue: &Catalogue) -> Result<Graph, Vec<Problem>> {
    let mut compiler = Compiler::new(definition, catalogue);
    let graph = compiler.run(version);
    let mut problems = compiler.problems;
    problems.sort();
    problems.dedup();
    match graph {
        Some(graph) if problems.is_empty() => Ok(graph),
        _ => Err(problems),
    }
}

struct Compiler<'a> {
    definition: &'a Definition,
    catalogue: &'a Catalogue,
    by_name: HashMap<Name, usize>,
    /// The needs that exist, with the edge that follows from the trigger.
    needs: Vec<Vec<(usize, Edge)>>,
    parts: Vec<Parts>,
    /// The parsed expressions by source. Steps of a large workflow are often similar, so each source is parsed once.
    parsed: HashMap<&'a str, Result<Expression, String>>,
    problems: Vec<Problem>,
}

/// The compiled parts of one step.
struct Parts {
    rule: Rule,
    when: Option<Expression>,
    for_each: Option<Expression>,
    input: Option<Expression>,
    settings: Vec<(Name, Expression)>,
}

impl Parts {
    /// Returns every expression with its key.
    fn expressions(&self) -> impl Iterator<Item = (&str, &Expression)> {
        let own = [("when", &self.when), ("for-each", &self.for_each), ("input", &self.input)];
        let own = own.into_iter().filter_map(|(key, expression)| Some((key, expression.as_ref()?)));
        own.chain(self.settings.iter().map(|(key, expression)| (&**key, expression)))
    }
}

impl<'a> Compiler<'a> {
    fn new(definition: &'a Definition, catalogue: &'a Catalogue) -> Compiler<'a> {
        Compiler {
            definition,
            catalogue,
            by_name: HashMap::new(),
            needs: Vec::new(),
            parts: Vec::new(),
            parsed: HashMap::new(),
            problems: Vec::new(),
        }
    }

    fn run(&mut self, version: u32) -> Option<Graph> {
        if !self.is_within_limits() {
            return None;
        }
        self.names();
        for step in &self.definition.steps {
            let needs = self.step_needs(step);
            let parts = self.step_parts(step);
            self.needs.push(needs);
            self.parts.push(parts);
        }
        let on = self.on();
        let plain: Vec<Vec<usize>> =
            self.needs.iter().map(|needs| needs.iter().map(|(need, _)| *need).collect()).collect();
        let order = match order::topological(&plain) {
            Ok(order) => order,
            Err(left_over) => {
                self.cycles(&plain, &left_over);
                return None;
            }
        };
        self.unreachable(&order);
        let output_read = self.reads(&plain, &order);
        self.problems.is_empty().then(|| self.build(version, on, &order, &output_read))
    }

    fn path(&self, step: &str, key: &str) -> String {
        format!("workflow.{}.step.{step}.{key}", self.definition.name)
    }

    fn report(&mut self, path: String, code: &'static str, message: impl Into<String>) -> &mut Problem {
        self.problems.push(Problem::error(path, code, message));
        let last = self.problems.len() - 1;
        &mut self.problems[last]
    }

    /// Checks the size; a workflow that is too large is not checked further.
    fn is_within_limits(&mut self) -> bool {
        let path = format!("workflow.{}", self.definition.name);
        let steps = self.definition.steps.len();
        let edges: usize = self.definition.steps.iter().map(|step| step.needs.len()).sum();
        if steps > STEPS_MAX {
            self.report(
                path.clone(),
                codes::problem::TOO_LARGE,
                format!("{steps} steps: a workflow has at most {STEPS_MAX}"),
            );
        }
        if edges > EDGES_MAX {
            self.report(
                path.clone(),
                codes::problem::TOO_LARGE,
                format!("{edges} needs: a workflow has at most {EDGES_MAX}"),
            );
        }
        if steps == 0 {
            self.report(path, codes::problem::MISSING_KEY, "a workflow needs at least one step");
        }
        self.problems.is_empty()
    }

    fn names(&mut self) {
        const HELP: &str = "a name is a lowercase letter, then lowercase letters, digits and _";
        let definition = self.definition;
        if !is_name(&definition.name) {
            let message = format!("`{}` cannot be the name of a workflow", definition.name);
            self.report(format!("workflow.{}", definition.name), codes::problem::BAD_NAME, message).help =
                Some(HELP.to_owned());
        }
        for (n, step) in definition.steps.iter().enumerate() {
            let path = format!("workflow.{}.step.{}", definition.name, step.name);
            if !is_name(&step.name) {
                let message = format!("`{}` cannot be the name of a step", step.name);
                self.report(path.clone(), codes::problem::BAD_NAME, message).help = Some(HELP.to_owned());
            }
            if self.by_name.contains_key(&step.name) {
                self.report(path, codes::problem::DUPLICATE_STEP, format!("there are two steps `{}`", step.name));
            } else {
                self.by_name.insert(step.name.clone(), n);
            }
        }
    }

    fn step_needs(&mut self, step: &StepDefinition) -> Vec<(usize, Edge)> {
        let (mut needs, mut seen) = (Vec::new(), HashSet::new());
        for (n, need) in step.needs.iter().enumerate() {
            let path = self.path(&step.name, &format!("needs[{n}]"));
            let Some(id) = self.by_name.get(&need.step).copied() else {
                self.unknown_step(path, &need.step);
                continue;
            };
            if !seen.insert(id) {
                self.report(path, codes::problem::DUPLICATE_STEP, format!("`{}` is needed twice", need.step));
                continue;
            }
            let edge = match step.trigger {
                Trigger::AllSuccess | Trigger::NoneFailed | Trigger::OneSuccess => need.on,
                Trigger::AllDone => Edge::Done,
                Trigger::OneFailed | Trigger::AllFailed => {
                    if need.on != Edge::Success {
                        let (trigger, on) = (step.trigger.word(), need.on.word());
                        let message = format!("`{trigger}` never counts a need with on = \"{on}\" as failed");
                        self.report(path, codes::problem::BAD_TRIGGER, message).help =
                            Some("leave `on` out".to_owned());
                    }
                    Edge::Failure
                }
            };
            needs.push((id, edge));
        }
        if step.needs.is_empty() && step.trigger != Trigger::default() {
            let message = format!("`{}` looks at needs, and this step has none", step.trigger.word());
            self.report(self.path(&step.name, "trigger"), codes::problem::BAD_TRIGGER, message);
        }
        needs
    }

    fn unknown_step(&mut self, path: String, written: &str) {
        let mut problem = Problem::error(path, codes::problem::UNKNOWN_STEP, format!("there is no step `{written}`"));
        if self.problems.len() < GUESSES_MAX {
            problem = problem.nearest(written, self.definition.steps.iter().map(|step| &*step.name));
        }
        self.problems.push(problem);
    }

    fn step_parts(&mut self, step: &'a StepDefinition) -> Parts {
        let kind = self.catalogue.get(&step.kind);
        // the reader has reported an empty `use` as missing
        if kind.is_none() && !step.kind.is_empty() {
            let path = self.path(&step.name, "use");
            let help = self.catalogue.nearest(&step.kind).map(|kind| format!("did you mean `{kind}`?"));
            self.report(path, codes::problem::UNKNOWN_KIND, format!("there is no kind of step `{}`", step.kind)).help =
                help;
        }
        let role = kind.map(|kind| kind.role);
        if step.for_each.is_some() && matches!(role, Some(Role::Sleep | Role::Wait | Role::Emit)) {
            let message = format!("`{}` is done once in a run", step.kind);
            let help = "move `for-each` to an earlier step; event.emit takes a list as its `input`";
            self.report(self.path(&step.name, "for-each"), codes::problem::BAD_FOR_EACH, message).help =
                Some(help.to_owned());
        }
        let mut settings = Vec::new();
        for setting in kind.iter().flat_map(|kind| kind.settings) {
            let source = step.settings.get(setting.name).and_then(|value| value.as_str());
            if setting.value == SettingValue::Template {
                // the step's kind reports problems in the rest of the text
                let places = template::placeholders(source.unwrap_or_default());
                let parsed = places.filter_map(|place| self.expression(&step.name, setting.name, Some(place)));
                let parsed: Vec<_> = parsed.collect();
                settings.extend(parsed.into_iter().map(|expression| (Name::from(setting.name), expression)));
                continue;
            }
            if setting.value != SettingValue::Expression {
                continue;
            }
            if let Some(expression) = self.expression(&step.name, setting.name, source) {
                settings.push((Name::from(setting.name), expression));
            }
        }
        Parts {
            rule: match step.trigger {
                Trigger::AllSuccess | Trigger::AllDone | Trigger::AllFailed => Rule::AllSuccess,
                Trigger::NoneFailed => Rule::NoneFailed,
                Trigger::OneSuccess | Trigger::OneFailed => Rule::OneSuccess,
            },
            when: self.expression(&step.name, "when", step.when.as_deref()),
            for_each: self.expression(&step.name, "for-each", step.for_each.as_deref()),
            input: self.expression(&step.name, "input", step.input.as_deref()),
            settings,
        }
    }

    fn expression(&mut self, step: &str, key: &str, source: Option<&'a str>) -> Option<Expression> {
        let source = source?;
        match self.parse(source) {
            Ok(expression) => Some(expression),
            Err(message) => {
                self.report(self.path(step, key), codes::problem::BAD_EXPRESSION, message);
                None
            }
        }
    }

    fn parse(&mut self, source: &'a str) -> Result<Expression, String> {
        let parse = || Expression::parse(source).map_err(|error| error.to_string());
        self.parsed.entry(source).or_insert_with(parse).clone()
    }

    fn on(&mut self) -> Vec<CompiledOn> {
        let mut compiled = Vec::new();
        for (n, on) in self.definition.on.iter().enumerate() {
            let path = format!("workflow.{}.on[{n}].when", self.definition.name);
            let when = match on.when.as_deref().map(|source| self.parse(source)) {
                None => None,
                Some(Ok(when)) => {
                    if when.reads_any_step() {
                        self.report(
                            path,
                            codes::problem::NOT_AN_ANCESTOR,
                            "no step has run before the event is looked at",
                        );
                    } else if let Some(other) = when.variables().find(|name| *name != "$event") {
                        let message = format!("there is no `{other}` before a run has begun");
                        self.report(path, codes::problem::BAD_EXPRESSION, message).help =
                            Some("`.` and `$event` are the event".to_owned());
                    } else if when.is_constant_false() {
                        self.report(
                            path,
                            codes::problem::UNREACHABLE,
                            "no event begins a run here: the condition is always false",
                        );
                    }
                    Some(when)
                }
                Some(Err(message)) => {
                    self.report(path, codes::problem::BAD_EXPRESSION, message);
                    None
                }
            };
            let (source, entity, columns) = (on.source.clone(), on.entity.clone(), on.columns.clone());
            compiled.push(CompiledOn { source, entity, change: on.change, columns, when });
        }
        compiled
    }

    fn cycles(&mut self, plain: &[Vec<usize>], left_over: &[usize]) {
        for cycle in order::cycles(plain, left_over) {
            let names = cycle.iter().chain(cycle.first()).map(|step| &*self.definition.steps[*step].name);
            let shown: Vec<&str> = names.collect();
            let message = if shown.len() <= 12 {
                shown.join(" → ")
            } else {
                format!(
                    "{} → … ({} more) → {}",
                    shown[..6].join(" → "),
                    shown.len() - 8,
                    shown[shown.len() - 2..].join(" → ")
                )
            };
            let path = self.path(shown[0], "needs");
            self.report(path, codes::problem::CYCLE, format!("these steps wait for each other: {message}"));
        }
    }

    fn unreachable(&mut self, order: &[usize]) {
        let steps = self.definition.steps.iter().zip(&self.parts);
        let known: Vec<reach::StepFacts> = steps
            .map(|(step, parts)| {
                // a sink whose condition is false runs: it deletes
                let role = self.catalogue.get(&step.kind).map(|kind| kind.role);
                let deletes = role == Some(Role::Sink) && step.otherwise == Otherwise::Delete;
                let has_when = parts.when.is_some() && !deletes;
                let never = has_when && parts.when.as_ref().is_some_and(Expression::is_constant_false);
                reach::StepFacts { rule: parts.rule, optional: step.optional, never, has_when }
            })
            .collect();
        for (n, ends) in reach::possible_ends(&known, &self.needs, order).iter().enumerate() {
            if ends.succeeded {
                continue;
            }
            let step = &self.definition.steps[n];
            let (key, message) = if known[n].never {
                ("when", "this step never runs: its condition is always false")
            } else {
                ("needs", "this step never runs: its needs can never end as its trigger asks")
            };
            self.report(self.path(&step.name, key), codes::problem::UNREACHABLE, message);
        }
    }

    /// Reports expressions that read a step which may not have ended before; returns which outputs are read.
    fn reads(&mut self, plain: &[Vec<usize>], order: &[usize]) -> Vec<bool> {
        let mut output_read = vec![false; plain.len()];
        let mut ancestors = None;
        let mut found = Vec::new();
        for (n, parts) in self.parts.iter().enumerate() {
            let step = &self.definition.steps[n];
            for need in default_input(step, self.catalogue.get(&step.kind), parts, &plain[n]) {
                output_read[*need] = true;
            }
            for (key, expression) in parts.expressions() {
                for name in expression.reads() {
                    let Some(read) = self.by_name.get(&**name).copied() else {
                        found.push((n, key.to_owned(), name.clone(), false));
                        continue;
                    };
                    output_read[read] = true;
                    let is_before = plain[n].contains(&read)
                        || ancestors.get_or_insert_with(|| Ancestors::new(plain, order)).contains(n, read);
                    if !is_before {
                        found.push((n, key.to_owned(), name.clone(), true));
                    }
                }
                if expression.reads_all() {
                    let ancestors = ancestors.get_or_insert_with(|| Ancestors::new(plain, order));
                    ancestors.ancestors_of(n).for_each(|ancestor| output_read[ancestor] = true);
                }
            }
        }
        for (n, key, name, exists) in found {
            let step = &self.definition.steps[n].name;
            let path = self.path(step, &key);
            if exists {
                let message = format!("reads `$steps.{name}`, which need not have ended before `{step}`");
                let help = format!("add \"{name}\" to its `needs`");
                self.report(path, codes::problem::NOT_AN_ANCESTOR, message).help = Some(help);
            } else {
                self.unknown_step(path, &name);
            }
        }
        output_read
    }
}

/// Returns the needs whose outputs a step gets without naming them.
fn default_input<'n>(step: &StepDefinition, kind: Option<&Kind>, parts: &Parts, needs: &'n [usize]) -> &'n [usize] {
    if parts.expressions().any(|(_, expression)| expression.reads_input()) {
        return needs;
    }
    match kind.map(|kind| kind.role) {
        _ if step.input.is_some() => &[],
        Some(Role::Sleep | Role::Wait) => &[],
        // its document is the output of its first need
        Some(Role::Sink) => &needs[..needs.len().min(1)],
        _ => needs,
    }
}

/// `[a-z][a-z0-9_]*`, because names appear in expressions: `$steps.load`.
fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|character| matches!(character, 'a'..='z' | '0'..='9' | '_'))
}
