//! One expression language for `when`, `input`, `for-each`, keys and `transform`: jq syntax without what reaches out
//! (environment, files, modules, clock) or could run for ever. Parsed and compiled when the workflow is loaded.
//!
//! An expression gives one value: none at all is `null`, more than one is an error.

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

/// What an expression can see, in the order in which jaq gets it.
const VARIABLES: [&str; 5] = ["$event", "$run", "$steps", "$item", "$index"];

/// Stack of a thread that evaluates what others wrote. Values can be made to nest deeper than any check sees, and are
/// dropped recursively; the memory is only reserved, not used.
pub const STACK_BYTES: usize = 512 << 20;

/// Cheap to clone; shared between threads.
#[derive(Clone)]
pub struct Expression {
    pub source: Name,
    compiled: Arc<Compiled>,
}

struct Compiled {
    filter: Filter,
    reads: Reads,
}

/// What an expression looks at, judged by its text.
#[derive(Debug, Default)]
struct Reads {
    steps: Vec<Name>,
    all_steps: bool,
    input: bool,
    /// By position in [`VARIABLES`].
    variables: [bool; VARIABLES.len()],
    constant_false: bool,
}

/// The values of `$event $run $steps $item $index`; what is not there is `null`.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    pub event: Document,
    pub run: Document,
    /// The outputs of the steps that have ended; one that is not here is `null`.
    pub steps: Vec<(Name, Document)>,
    pub item: Document,
    pub index: Option<u32>,
}

/// `$run`.
pub fn run_value(workflow: &str, version: u32, tenant: &str, entity: &str, key: &str) -> Value {
    serde_json::json!({ "workflow": workflow, "version": version, "tenant": tenant, "entity": entity, "key": key })
}

/// Why a source is not an expression, and where: line and column count from 1, columns in characters.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ExpressionError {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

impl ExpressionError {
    /// `at` is a slice of `source`; where it is not, the error is at the end.
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

    /// The steps whose outputs it names, as in `$steps.load`, sorted.
    pub fn reads(&self) -> &[Name] {
        &self.compiled.reads.steps
    }

    /// Whether it uses `$steps` in a way that does not say which.
    pub fn reads_all(&self) -> bool {
        self.compiled.reads.all_steps
    }

    pub(crate) fn reads_any_step(&self) -> bool {
        self.reads_all() || !self.reads().is_empty()
    }

    /// The variables it uses: `$event`, `$run` …
    pub fn variables(&self) -> impl Iterator<Item = &'static str> + '_ {
        VARIABLES.into_iter().zip(self.compiled.reads.variables).filter(|(_, read)| *read).map(|(name, _)| name)
    }

    /// Whether it may look at its input, `.`.
    pub fn reads_input(&self) -> bool {
        self.compiled.reads.input
    }

    /// Written so that it can never be anything but `false` or `null`.
    pub fn is_constant_false(&self) -> bool {
        self.compiled.reads.constant_false
    }

    /// The one value it gives. Bounded in size and nesting, but not in time: that is for whoever calls it, on a thread
    /// of at least [`STACK_BYTES`] where the expression is not trusted.
    pub fn evaluate(&self, input: &Value, variables: &Variables) -> Result<Value, String> {
        // the data is not ours, nor is the evaluator: one that panics rejects this item, no other
        panic::catch_unwind(panic::AssertUnwindSafe(|| self.first_output(input, variables)))
            .unwrap_or_else(|_| Err("the evaluator gave up".to_owned()))
    }

    fn first_output(&self, input: &Value, variables: &Variables) -> Result<Value, String> {
        let Compiled { filter, reads } = &*self.compiled;
        // what is not looked at need not be copied
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

/// What was given to `error`, or what the evaluator says. It quotes values, and values may be large: it is cut.
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
