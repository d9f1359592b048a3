//! The expression language of `when`, `input`, `for-each`, keys and `transform`: jq syntax without access to the
//! outside (environment, files, modules, clock) and without filters that could run for ever. Expressions are parsed and
//! compiled when the workflow is loaded.
//!
//! An expression gives one value: no value is `null`, more than one is an error.

mod allowed;
mod bounds;
mod check;
mod compile;
pub mod template;
#[cfg(test)]
mod tests;
mod value;

use std::{fmt, panic, sync::Arc};

use honeyflow_event::{Document, Name};
use jaq_core::load::{Lexer, Parser};
use jaq_core::{Ctx, Vars, data::JustLut, unwrap_valr};
use jaq_json::Val;
use serde_json::Value;

type Filter = jaq_core::Filter<JustLut<Val>>;

/// The variables of an expression, in the order in which jaq gets them.
const VARIABLES: [&str; 5] = ["$event", "$run", "$steps", "$item", "$index"];

/// The stack size of a thread that evaluates untrusted expressions. An expression can make values that nest deeper than
/// any check sees, and they are dropped recursively; the memory is only reserved, not used.
pub const STACK_BYTES: usize = 512 << 20;

/// A compiled expression; cheap to clone, and shared between threads.
#[derive(Clone)]
pub struct Expression {
    pub source: Name,
    compiled: Arc<Compiled>,
}

struct Compiled {
    filter: Filter,
    reads: Reads,
}

/// The values that an expression reads, found in its source.
#[derive(Debug, Default)]
struct Reads {
    steps: Vec<Name>,
    all_steps: bool,
    input: bool,
    /// Whether it reads each of [`VARIABLES`].
    variables: [bool; VARIABLES.len()],
    constant_false: bool,
}

/// The values of `$event $run $steps $item $index`; a missing one is `null`.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    pub event: Document,
    pub run: Document,
    /// The outputs of the steps that have ended; a missing one is `null`.
    pub steps: Vec<(Name, Document)>,
    pub item: Document,
    pub index: Option<u32>,
}

/// Returns the value of `$run`.
pub fn run_value(workflow: &str, version: u32, tenant: &str, entity: &str, key: &str) -> Value {
    serde_json::json!({ "workflow": workflow, "version": version, "tenant": tenant, "entity": entity, "key": key })
}

/// Why a source is no valid expression, and where: line and column count from 1, columns in characters.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ExpressionError {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

impl ExpressionError {
    /// `at` is a slice of `source`; if it is not, the error is at the end.
    fn new(source: &str, at: &str, message: impl Into<String>) -> ExpressionError {
        let offset = (at.as_ptr() as usize).checked_sub(source.as_ptr() as usize);
        let before = offset.and_then(|offset| source.get(..offset)).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ExpressionError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        }
    }
}

impl Expression {
    pub fn parse(source: &str) -> Result<Expression, ExpressionError> {
        let error = |at: &str, message: String| ExpressionError::new(source, at, message);
        bounds::characters(source)?;
        let tokens = Lexer::new(source).lex().map_err(|errors| match errors.first() {
            Some((expected, at)) => error(at, format!("expected {}", expected.as_str())),
            None => error(source, "cannot be read".to_owned()),
        })?;
        bounds::tokens(source, &tokens)?;
        let tree = Parser::new(&tokens).parse(Parser::term).map_err(|errors| match errors.first() {
            Some((expected, at)) => {
                let at = at.map_or(&source[source.len()..], |token| token.0);
                error(at, format!("expected {}", expected.as_str()))
            }
            None => error(source, "cannot be read".to_owned()),
        })?;
        let reads = check::check(source, &tree)?;
        let filter = compile::compile(tree).map_err(|message| error(source, message))?;
        Ok(Expression { source: source.into(), compiled: Arc::new(Compiled { filter, reads }) })
    }

    /// Returns the steps whose outputs it names, as in `$steps.load`, sorted.
    pub fn reads(&self) -> &[Name] {
        &self.compiled.reads.steps
    }

    /// Whether it uses `$steps` without the name of a step, so that it may read any.
    pub fn reads_all(&self) -> bool {
        self.compiled.reads.all_steps
    }

    pub(crate) fn reads_any_step(&self) -> bool {
        self.reads_all() || !self.reads().is_empty()
    }

    /// Returns the variables it uses: `$event`, `$run` …
    pub fn variables(&self) -> impl Iterator<Item = &'static str> + '_ {
        VARIABLES.into_iter().zip(self.compiled.reads.variables).filter(|(_, read)| *read).map(|(name, _)| name)
    }

    /// Whether it may read its input, `.`.
    pub fn reads_input(&self) -> bool {
        self.compiled.reads.input
    }

    /// Whether it is the constant `false` or `null`.
    pub fn is_constant_false(&self) -> bool {
        self.compiled.reads.constant_false
    }

    /// Returns its value. Size and nesting are bounded, the time is not: the caller must limit it, on a thread with at
    /// least [`STACK_BYTES`] of stack if the expression is not trusted.
    pub fn evaluate(&self, input: &Value, variables: &Variables) -> Result<Value, String> {
        // the data and the evaluator are foreign: a panic rejects only this item
        panic::catch_unwind(panic::AssertUnwindSafe(|| self.first_output(input, variables)))
            .unwrap_or_else(|_| Err("the evaluator gave up".to_owned()))
    }

    fn first_output(&self, input: &Value, variables: &Variables) -> Result<Value, String> {
        let Compiled { filter, reads } = &*self.compiled;
        // values that are not read are not copied
        let shown = |variable: usize, document: &Document| match document {
            Some(value) if reads.variables[variable] => value::from_json(value),
            _ => Val::Null,
        };
        let values = [
            shown(0, &variables.event),
            shown(1, &variables.run),
            self.steps(variables),
            shown(3, &variables.item),
            variables.index.map_or(Val::Null, |index| Val::from(index as usize)),
        ];
        let input = if reads.input { value::from_json(input) } else { Val::Null };
        let context = Ctx::<JustLut<Val>>::new(&filter.lut, Vars::new(values));
        let mut outputs = filter.id.run((context, input)).map(unwrap_valr);
        let value = match outputs.next() {
            None => return Ok(Value::Null),
            Some(Err(error)) => return Err(message(error)),
            Some(Ok(value)) => value,
        };
        match outputs.next() {
            None => value::to_json(&value),
            Some(Err(error)) => Err(message(error)),
            Some(Ok(_)) => Err("gives more than one value: put it in [ ] for a list, or in first( )".to_owned()),
        }
    }

    fn steps(&self, variables: &Variables) -> Val {
        let reads = &self.compiled.reads;
        let is_read = |name: &Name| reads.all_steps || reads.steps.binary_search(name).is_ok();
        if !reads.variables[2] {
            return Val::Null;
        }
        let read = variables.steps.iter().filter(|(name, _)| is_read(name));
        Val::obj(
            read.map(|(name, output)| {
                let output = output.as_deref().map_or(Val::Null, value::from_json);
                (Val::from(name.to_string()), output)
            })
            .collect(),
        )
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        self.source == other.source
    }
}

/// Returns the argument of `error`, or the evaluator's message. It quotes values, which may be large, so it is cut.
fn message(error: jaq_json::Error) -> String {
    const CHARACTERS_MAX: usize = 500;
    let message = match error.into_val() {
        Val::TStr(text) | Val::BStr(text) => String::from_utf8_lossy(&text).into_owned(),
        other => other.to_string(),
    };
    match message.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}
