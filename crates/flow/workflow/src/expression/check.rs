//! Walks the parse tree: refuses forbidden parts, and notes what the expression reads.

use honeyflow_event::Name;
use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::{ops::Math, path::Part};

use super::bounds::{DEPTH_MAX, too_deep};
use super::{ExpressionError, Reads, VARIABLES, allowed, compile::RESERVED};
use crate::problem;

const RANGE_MAX: f64 = 100_000.0;

type Tree<'s> = Term<&'s str>;

pub(super) fn check<'s>(source: &'s str, tree: &Tree<'s>) -> Result<Reads, ExpressionError> {
    let mut walk =
        Walk { source, reads: Reads::default(), filters: Vec::new(), open: Vec::new(), bound: Vec::new(), depth: 0 };
    walk.term(tree)?;
    let mut reads = walk.reads;
    reads.steps.sort();
    reads.steps.dedup();
    reads.constant_false = matches!(tree, Term::Call("false" | "null", arguments) if arguments.is_empty());
    Ok(reads)
}

struct Walk<'s> {
    source: &'s str,
    reads: Reads,
    /// The filters that the expression itself defines and that are visible here, and the parameters of the enclosing
    /// ones.
    filters: Vec<(&'s str, usize)>,
    /// The definitions whose bodies enclose this place: calling one of them would be recursion.
    open: Vec<(&'s str, usize)>,
    /// The variables that the expression itself binds and that are visible here.
    bound: Vec<&'s str>,
    depth: usize,
}

impl<'s> Walk<'s> {
    fn refuse<T>(&self, at: &'s str, message: impl Into<String>) -> Result<T, ExpressionError> {
        Err(ExpressionError::new(self.source, at, message))
    }

    fn terms<'t>(&mut self, terms: impl IntoIterator<Item = &'t Tree<'s>>) -> Result<(), ExpressionError>
    where
        's: 't,
    {
        terms.into_iter().try_for_each(|term| self.term(term))
    }

    fn term(&mut self, term: &Tree<'s>) -> Result<(), ExpressionError> {
        // texts, objects and paths are compiled to chains of their parts
        let deeper = match term {
            Term::Str(_, parts) => parts.len(),
            Term::Obj(fields) => fields.len(),
            Term::Path(_, path) => path.0.len(),
            _ => 0,
        };
        self.depth += deeper + 1;
        if self.depth > DEPTH_MAX {
            return Err(too_deep(self.source, self.source));
        }
        let checked = self.check_term(term);
        self.depth -= deeper + 1;
        checked
    }

    fn check_term(&mut self, term: &Tree<'s>) -> Result<(), ExpressionError> {
        match term {
            Term::Id | Term::Recurse => {
                self.reads.input = true;
                Ok(())
            }
            Term::Num(_) | Term::Break(_) => Ok(()),
            Term::Str(format, parts) => {
                if let Some(format) = format {
                    self.call(format, &[])?;
                }
                self.terms(parts.iter().filter_map(|part| match part {
                    StrPart::Term(term) => Some(term),
                    StrPart::Str(_) | StrPart::Char(_) => None,
                }))
            }
            Term::Arr(items) => self.terms(items.as_deref()),
            Term::Obj(fields) => fields.iter().try_for_each(|(key, value)| {
                // `{a}` is short for `{a: .a}`, `{$a}` for `{a: $a}`
                self.reads.input |= value.is_none() && !matches!(key, Term::Var(_));
                self.term(key)?;
                self.terms(value)
            }),
            Term::Neg(term) => self.term(term),
            Term::Label(_, term) => self.term(term),
            Term::BinOp(left, BinaryOp::Pipe(Some(pattern)), right) => {
                self.term(left)?;
                self.with_pattern(pattern, |walk| walk.term(right))
            }
            Term::BinOp(_, BinaryOp::UpdateMath(Math::Mul), _) => {
                self.refuse(self.source, "`*=` is not available here: write `… |= . * …`")
            }
            Term::BinOp(left, _, right) => {
                self.term(left)?;
                self.term(right)
            }
            Term::Fold(_, items, pattern, arguments) => {
                self.term(items)?;
                // without items, the result is the start value; the other arguments see the accumulator as `.`
                self.with_pattern(pattern, |walk| walk.terms(arguments))
            }
            Term::TryCatch(attempt, catch) => {
                self.term(attempt)?;
                self.terms(catch.as_deref())
            }
            Term::IfThenElse(branches, otherwise) => {
                branches.iter().try_for_each(|(condition, then)| {
                    self.term(condition)?;
                    self.term(then)
                })?;
                // without `else` the input passes through
                self.reads.input |= otherwise.is_none();
                self.terms(otherwise.as_deref())
            }
            Term::Def(definitions, rest) => self.definitions(definitions, rest),
            Term::Call(name, arguments) => self.call(name, arguments),
            Term::Var(name) => self.variable(name),
            Term::Path(head, path) => {
                match (&**head, path.0.first()) {
                    (Term::Var("$steps"), Some((Part::Index(key), _))) if !self.bound.contains(&"$steps") => {
                        self.step(key)?;
                    }
                    _ => self.term(head)?,
                }
                path.0.iter().try_for_each(|(part, _)| match part {
                    Part::Index(index) => self.term(index),
                    Part::Range(from, to) => self.terms(from.iter().chain(to)),
                })
            }
        }
    }

    /// Notes `$steps.name` and `$steps["name"]`; a computed name may be any step.
    fn step(&mut self, key: &Tree<'s>) -> Result<(), ExpressionError> {
        self.reads.variables[2] = true;
        match key {
            Term::Str(None, parts) => match &parts[..] {
                [StrPart::Str(name)] => self.reads.steps.push(Name::from(*name)),
                _ => self.reads.all_steps = true,
            },
            _ => self.reads.all_steps = true,
        }
        Ok(())
    }

    fn variable(&mut self, name: &'s str) -> Result<(), ExpressionError> {
        if self.bound.contains(&name) {
            return Ok(());
        }
        match VARIABLES.iter().position(|variable| *variable == name) {
            Some(n) => {
                self.reads.variables[n] = true;
                self.reads.all_steps |= name == "$steps";
                Ok(())
            }
            None => self.refuse(name, guess(format!("there is no variable `{name}`"), name, VARIABLES)),
        }
    }

    fn call(&mut self, name: &'s str, arguments: &[Tree<'s>]) -> Result<(), ExpressionError> {
        let called = (name, arguments.len());
        if self.open.contains(&called) {
            return self.refuse(name, format!("`{name}` calls itself, and could do so for ever"));
        }
        let is_own = self.filters.contains(&called);
        if !is_own && !allowed::is_allowed(name, arguments.len()) {
            let shown = if arguments.is_empty() { name.to_owned() } else { format!("{name}/{}", arguments.len()) };
            return self.refuse(name, guess(format!("`{shown}` is not available here"), name, allowed::names()));
        }
        if !is_own && name == "range" && !arguments.iter().all(is_small_number) {
            return self.refuse(name, format!("the bounds of `range` must be numbers written out, up to {RANGE_MAX}"));
        }
        self.reads.input |= !matches!(called, ("true" | "false" | "null" | "empty", 0));
        self.terms(arguments)
    }

    fn definitions(&mut self, definitions: &[Def<&'s str>], rest: &Tree<'s>) -> Result<(), ExpressionError> {
        let visible = self.filters.len();
        for definition in definitions {
            let own = (definition.name, definition.args.len());
            if RESERVED.contains(&definition.name) {
                return self.refuse(definition.name, format!("`{}` is a reserved name", definition.name));
            }
            let (filters, bound) = (self.filters.len(), self.bound.len());
            self.open.push(own);
            for argument in &definition.args {
                match argument.strip_prefix('$') {
                    Some(filter) => {
                        self.bound.push(argument);
                        self.filters.push((filter, 0));
                    }
                    None => self.filters.push((argument, 0)),
                }
            }
            let body = self.term(&definition.body);
            self.open.pop();
            self.filters.truncate(filters);
            self.bound.truncate(bound);
            body?;
            self.filters.push(own);
        }
        let rest = self.term(rest);
        self.filters.truncate(visible);
        rest
    }

    fn with_pattern(
        &mut self,
        pattern: &Pattern<&'s str>,
        inside: impl FnOnce(&mut Self) -> Result<(), ExpressionError>,
    ) -> Result<(), ExpressionError> {
        let bound = self.bound.len();
        self.pattern(pattern)?;
        let result = inside(self);
        self.bound.truncate(bound);
        result
    }

    fn pattern(&mut self, pattern: &Pattern<&'s str>) -> Result<(), ExpressionError> {
        match pattern {
            Pattern::Var(name) => {
                self.bound.push(name);
                Ok(())
            }
            Pattern::Arr(items) => items.iter().try_for_each(|item| self.pattern(item)),
            Pattern::Obj(fields) => fields.iter().try_for_each(|(key, value)| {
                self.term(key)?;
                self.pattern(value)
            }),
        }
    }
}

fn is_small_number(term: &Tree<'_>) -> bool {
    match term {
        Term::Num(number) => number.parse().is_ok_and(|number: f64| number <= RANGE_MAX),
        Term::Neg(number) => is_small_number(number),
        _ => false,
    }
}

fn guess<'a>(message: String, written: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    match problem::nearest(written, words) {
        Some(word) if word != written => format!("{message}; did you mean `{word}`?"),
        _ => message,
    }
}
