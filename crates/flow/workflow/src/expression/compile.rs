//! Compiles a checked parse tree to a filter that can be executed. Our own filters bound three things of the library:
//! multiplication, which repeats texts and grows numbers without end; `fromjson`, which nests without end; and the
//! value that a fold carries from item to item, which can nest as deep as there are items, and is dropped recursively.

use std::sync::OnceLock;

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::load::{Arena, File, Loader};
use jaq_core::native::{Fun, bome, run, v};
use jaq_core::{Native, box_iter::box_once, data::JustLut, ops::Math, path::Part};
use jaq_json::{Num, Val};

use super::{Filter, VARIABLES, value};

/// Reserved names: [`super::check`] refuses definitions of them.
const EXPRESSION: &str = "_expression";
const MULTIPLY: &str = "_multiply";
const SHALLOW: &str = "_shallow";
pub(super) const RESERVED: [&str; 3] = [EXPRESSION, MULTIPLY, SHALLOW];

const TEXT_BYTES_MAX: usize = 16 << 20;
/// The most digits of a product: far more than JSON keeps, far fewer than would be slow.
const DIGITS_MAX: usize = 1000;
/// The most levels of a value that a fold carries: far more than a result may have, far fewer than overflow a small
/// stack when dropped.
const CARRIED_LEVELS_MAX: usize = 500;

pub(super) fn compile<'s>(mut tree: Term<&'s str>) -> Result<Filter, String> {
    bound(&mut tree);
    let arena = Arena::default();
    let expression: Def<&'s str> = Def { name: EXPRESSION, args: Vec::new(), body: tree };
    let modules = Loader::new(prelude().iter().cloned().chain([expression]))
        .load(&arena, File { code: EXPRESSION, path: () })
        .map_err(|_| "cannot be loaded".to_owned())?;
    let compiler = jaq_core::Compiler::default().with_funs(functions()).with_global_vars(VARIABLES);
    compiler.compile(modules).map_err(|errors| {
        let undefined = errors.into_iter().flat_map(|(_, errors)| errors).next();
        undefined.map_or_else(|| "cannot be compiled".to_owned(), |(name, _)| format!("`{name}` is not defined"))
    })
}

/// Returns the filters of jaq that are written in jq itself; they are parsed once.
fn prelude() -> &'static [Def<&'static str>] {
    static PRELUDE: OnceLock<Vec<Def<&'static str>>> = OnceLock::new();
    PRELUDE.get_or_init(|| jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs()).collect())
}

fn functions() -> impl Iterator<Item = Fun<JustLut<Val>>> {
    let library = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let shallow = Native::new(|cv| bome(check_depth(cv.1)))
        .with_paths(|cv| box_once(Ok(cv.1)))
        .with_update(|cv, update| update(cv.1));
    let ours: [Fun<JustLut<Val>>; 3] = [
        (SHALLOW, v(0), shallow),
        run(("fromjson", v(0), |cv| bome(from_json(&cv.1)))),
        run((MULTIPLY, v(2), |mut cv| {
            let right = cv.0.pop_var();
            let left = cv.0.pop_var();
            bome(multiply(left, right))
        })),
    ];
    library.filter(|(name, _, _)| *name != "fromjson").chain(ours)
}

fn from_json(text: &Val) -> jaq_json::ValR {
    let (Val::TStr(bytes) | Val::BStr(bytes)) = text else {
        return Err(jaq_json::Error::str("fromjson wants a text"));
    };
    match serde_json::from_slice(bytes) {
        Ok(parsed) => Ok(value::from_json(&parsed)),
        Err(error) => Err(jaq_json::Error::str(format_args!("not JSON: {error}"))),
    }
}

fn multiply(left: Val, right: Val) -> jaq_json::ValR {
    let too_large = match (&left, &right) {
        (Val::TStr(text) | Val::BStr(text), Val::Num(number))
        | (Val::Num(number), Val::TStr(text) | Val::BStr(text)) => {
            let times = match number {
                Num::Int(times) => usize::try_from(*times).unwrap_or(0),
                _ => usize::MAX,
            };
            text.len().max(1).saturating_mul(times) > TEXT_BYTES_MAX
        }
        (Val::Num(left), Val::Num(right)) => digits(left) + digits(right) > DIGITS_MAX,
        _ => false,
    };
    if too_large {
        return Err(jaq_json::Error::str("the product is too large"));
    }
    left * right
}

/// Returns the digits of a big integer; 0 for other numbers, which have a fixed size.
fn digits(number: &Num) -> usize {
    match number {
        // a digit has a little more than three bits
        Num::BigInt(integer) => usize::try_from(integer.bits() / 3).unwrap_or(usize::MAX / 2),
        _ => 0,
    }
}

/// Returns the value, or an error if it nests too deep. It follows only the first and the last element: a fold builds
/// nested lists by putting the old value before or after the new one.
fn check_depth(value: Val) -> jaq_json::ValR {
    for last in [false, true] {
        let (mut inside, mut levels) = (&value, 0);
        while let Some(next) = nested_value(inside, last) {
            (inside, levels) = (next, levels + 1);
            if levels > CARRIED_LEVELS_MAX {
                return Err(jaq_json::Error::str("a fold nests too deep"));
            }
        }
    }
    Ok(value)
}

/// Returns the first or last list or object in a value, among its first or last eight elements.
fn nested_value(value: &Val, last: bool) -> Option<&Val> {
    const LOOKED_AT: usize = 8;
    let holds = |inside: &&Val| matches!(inside, Val::Arr(_) | Val::Obj(_));
    match (value, last) {
        (Val::Arr(items), false) => items.iter().take(LOOKED_AT).find(holds),
        (Val::Arr(items), true) => items.iter().rev().take(LOOKED_AT).find(holds),
        (Val::Obj(fields), false) => fields.values().take(LOOKED_AT).find(holds),
        (Val::Obj(fields), true) => fields.values().rev().take(LOOKED_AT).find(holds),
        _ => None,
    }
}

/// Replaces every `l * r` by a call of our own filter, and adds a check of the value that a fold carries.
fn bound(term: &mut Term<&str>) {
    match term {
        Term::Id | Term::Recurse | Term::Num(_) | Term::Break(_) | Term::Var(_) => {}
        Term::Str(_, parts) => {
            for part in parts {
                if let StrPart::Term(term) = part {
                    bound(term);
                }
            }
        }
        Term::Arr(items) => items.iter_mut().for_each(|items| bound(items)),
        Term::Obj(fields) => {
            for (key, value) in fields {
                bound(key);
                value.iter_mut().for_each(bound);
            }
        }
        Term::Neg(term) | Term::Label(_, term) => bound(term),
        Term::BinOp(left, operation, right) => {
            bound(left);
            bound(right);
            if let BinaryOp::Pipe(Some(pattern)) = operation {
                bound_pattern(pattern);
            }
            if let BinaryOp::Math(Math::Mul) = operation {
                *term = Term::Call(MULTIPLY, vec![std::mem::take(left), std::mem::take(right)]);
            }
        }
        Term::Fold(_, items, pattern, arguments) => {
            bound(items);
            bound_pattern(pattern);
            arguments.iter_mut().for_each(bound);
            if let Some(update) = arguments.get_mut(1) {
                let carried = Box::new(std::mem::take(update));
                *update = Term::BinOp(carried, BinaryOp::Pipe(None), Box::new(Term::Call(SHALLOW, Vec::new())));
            }
        }
        Term::TryCatch(attempt, catch) => {
            bound(attempt);
            catch.iter_mut().for_each(|catch| bound(catch));
        }
        Term::IfThenElse(branches, otherwise) => {
            for (condition, then) in branches {
                bound(condition);
                bound(then);
            }
            otherwise.iter_mut().for_each(|otherwise| bound(otherwise));
        }
        Term::Def(definitions, rest) => {
            definitions.iter_mut().for_each(|definition| bound(&mut definition.body));
            bound(rest);
        }
        Term::Call(_, arguments) => arguments.iter_mut().for_each(bound),
        Term::Path(head, path) => {
            bound(head);
            for (part, _) in &mut path.0 {
                match part {
                    Part::Index(index) => bound(index),
                    Part::Range(from, to) => from.iter_mut().chain(to).for_each(bound),
                }
            }
        }
    }
}

fn bound_pattern(pattern: &mut Pattern<&str>) {
    match pattern {
        Pattern::Var(_) => {}
        Pattern::Arr(items) => items.iter_mut().for_each(bound_pattern),
        Pattern::Obj(fields) => {
            for (key, value) in fields {
                bound(key);
                bound_pattern(value);
            }
        }
    }
}
