//! One expression language for `when`, `input`, `for-each`, keys and `transform`: jq syntax without what reaches out
//! (environment, files, modules, clock) or could run for ever. Parsed and compiled when the workflow is loaded.
//!
//! An expression gives one value: none at all is `null`, more than one is an error.

mod allowed;
mod check;
#[cfg(test)]
mod tests;
mod value;

use std::{fmt, sync::Arc, sync::OnceLock};

use honeyflow_event::{Document, Name};
use jaq_core::load::{Arena, File, Lexer, Loader, Parser, parse::Def, parse::Term};
use jaq_core::{Ctx, Vars, data::JustLut, unwrap_valr};
use jaq_json::Val;
use serde_json::Value;

pub(crate) type Filter = jaq_core::Filter<JustLut<Val>>;

/// What an expression can see, in the order in which jaq gets it.
const VARIABLES: [&str; 5] = ["$event", "$run", "$steps", "$item", "$index"];

/// Nesting of brackets and number of words in a source: the parser is recursive.
const BRACKETS_MAX: usize = 64;
const TOKENS_MAX: usize = 2000;
const SOURCE_BYTES_MAX: usize = 64 * 1024;

/// Stack of a thread that evaluates. Values nest as deep as a fold makes them, and are dropped recursively; the memory
/// is only reserved, not used.
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
        bounds(source)?;
        let tokens = Lexer::new(source).lex().map_err(|errors| match errors.first() {
            Some((expected, at)) => error(at, format!("expected {}", expected.as_str())),
            None => error(source, "cannot be read".to_owned()),
        })?;
        let tree = Parser::new(&tokens).parse(|parser| parser.term()).map_err(|errors| match errors.first() {
            Some((expected, at)) => {
                let at = at.map_or(&source[source.len()..], |token| token.0);
                error(at, format!("expected {}", expected.as_str()))
            }
            None => error(source, "cannot be read".to_owned()),
        })?;
        let reads = check::check(source, &tree)?;
        let filter = compile(source).map_err(|message| error(source, message))?;
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
            Some(Err(error)) => return Err(shortened(error.to_string())),
            Some(Ok(value)) => value,
        };
        match outputs.next() {
            None => value::to_json(&value),
            Some(Err(error)) => Err(shortened(error.to_string())),
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

/// The library's parser is recursive: what would be too deep for it is not shown to it.
fn bounds(source: &str) -> Result<(), ExpressionError> {
    if source.len() > SOURCE_BYTES_MAX {
        let message = format!("longer than {SOURCE_BYTES_MAX} bytes");
        return Err(ExpressionError::new(source, source, message));
    }
    let (mut depth, mut words, mut in_word) = (0_usize, 0_usize, false);
    for (n, character) in source.char_indices() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_word = character.is_alphanumeric() || character == '_';
        words += usize::from(!character.is_whitespace() && !(is_word && in_word));
        in_word = is_word;
        if depth > BRACKETS_MAX || words > TOKENS_MAX {
            let message =
                format!("too large: at most {BRACKETS_MAX} brackets inside each other and {TOKENS_MAX} words and signs");
            return Err(ExpressionError::new(source, &source[n..], message));
        }
    }
    Ok(())
}

/// The definitions of jaq's own library that an expression may use, and what these use.
fn prelude() -> &'static [Def<&'static str>] {
    static PRELUDE: OnceLock<Vec<Def<&'static str>>> = OnceLock::new();
    PRELUDE.get_or_init(|| jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs()).collect())
}

fn compile(source: &str) -> Result<Filter, String> {
    let arena = Arena::default();
    let modules = Loader::new(prelude().iter().cloned())
        .load(&arena, File { code: source, path: () })
        .map_err(|_| "cannot be loaded".to_owned())?;
    let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    jaq_core::Compiler::default().with_funs(functions).with_global_vars(VARIABLES).compile(modules).map_err(|errors| {
        let undefined = errors.into_iter().flat_map(|(_, errors)| errors).next();
        undefined.map_or_else(|| "cannot be compiled".to_owned(), |(name, _)| format!("`{name}` is not defined"))
    })
}

/// Errors quote values, and values may be large.
fn shortened(message: String) -> String {
    const CHARACTERS_MAX: usize = 500;
    match message.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

#[allow(dead_code, reason = "checked when it compiles")]
fn expressions_are_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Expression>();
    let _: fn(&Term<&str>) = |_| {};
}
