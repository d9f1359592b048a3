//! From a checked parse tree to a filter that can be run. Two things of the library are replaced by bounded ones of our
//! own: multiplication, which repeats texts and grows numbers without end, and `fromjson`, which nests without end.

use std::sync::OnceLock;

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::load::{Arena, File, Loader};
use jaq_core::native::{Fun, bome, run, v};
use jaq_core::{data::JustLut, ops::Math, path::Part};
use jaq_json::{Num, Val};

use super::{Filter, VARIABLES, value};

/// Names that only we can write: [`super::check`] refuses definitions of them.
const EXPRESSION: &str = "_expression";
const MULTIPLY: &str = "_multiply";
pub(super) const RESERVED: [&str; 2] = [EXPRESSION, MULTIPLY];

const TEXT_BYTES_MAX: usize = 16 << 20;
/// Digits of a product: far beyond what JSON keeps, far below what hurts.
const DIGITS_MAX: usize = 1000;

pub(super) fn compile<'s>(mut tree: Term<&'s str>) -> Result<Filter, String> {
    bound_products(&mut tree);
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

/// The filters of jaq that are written in jq itself; parsed once.
fn prelude() -> &'static [Def<&'static str>] {
    static PRELUDE: OnceLock<Vec<Def<&'static str>>> = OnceLock::new();
    PRELUDE.get_or_init(|| jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs()).collect())
}

fn functions() -> impl Iterator<Item = Fun<JustLut<Val>>> {
    let library = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let ours: [Fun<JustLut<Val>>; 2] = [
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

/// Digits of a number of arbitrary size; others are as small as they are.
fn digits(number: &Num) -> usize {
    match number {
        // three bits and a bit make a digit
        Num::BigInt(integer) => usize::try_from(integer.bits() / 3).unwrap_or(usize::MAX / 2),
        _ => 0,
    }
}

/// Replaces every `l * r` by a call of our own.
fn bound_products(term: &mut Term<&str>) {
    match term {
        Term::Id | Term::Recurse | Term::Num(_) | Term::Break(_) | Term::Var(_) => {}
        Term::Str(_, parts) => {
            for part in parts {
                if let StrPart::Term(term) = part {
                    bound_products(term);
                }
            }
        }
        Term::Arr(items) => items.iter_mut().for_each(|items| bound_products(items)),
        Term::Obj(fields) => {
            for (key, value) in fields {
                bound_products(key);
                value.iter_mut().for_each(bound_products);
            }
        }
        Term::Neg(term) | Term::Label(_, term) => bound_products(term),
        Term::BinOp(left, operation, right) => {
            bound_products(left);
            bound_products(right);
            if let BinaryOp::Pipe(Some(pattern)) = operation {
                bound_products_in_pattern(pattern);
            }
            if let BinaryOp::Math(Math::Mul) = operation {
                *term = Term::Call(MULTIPLY, vec![std::mem::take(left), std::mem::take(right)]);
            }
        }
        Term::Fold(_, items, pattern, arguments) => {
            bound_products(items);
            bound_products_in_pattern(pattern);
            arguments.iter_mut().for_each(bound_products);
        }
        Term::TryCatch(attempt, catch) => {
            bound_products(attempt);
            catch.iter_mut().for_each(|catch| bound_products(catch));
        }
        Term::IfThenElse(branches, otherwise) => {
            for (condition, then) in branches {
                bound_products(condition);
                bound_products(then);
            }
            otherwise.iter_mut().for_each(|otherwise| bound_products(otherwise));
        }
        Term::Def(definitions, rest) => {
            definitions.iter_mut().for_each(|definition| bound_products(&mut definition.body));
            bound_products(rest);
        }
        Term::Call(_, arguments) => arguments.iter_mut().for_each(bound_products),
        Term::Path(head, path) => {
            bound_products(head);
            for (part, _) in &mut path.0 {
                match part {
                    Part::Index(index) => bound_products(index),
                    Part::Range(from, to) => from.iter_mut().chain(to).for_each(bound_products),
                }
            }
        }
    }
}

fn bound_products_in_pattern(pattern: &mut Pattern<&str>) {
    match pattern {
        Pattern::Var(_) => {}
        Pattern::Arr(items) => items.iter_mut().for_each(bound_products_in_pattern),
        Pattern::Obj(fields) => {
            for (key, value) in fields {
                bound_products(key);
                bound_products_in_pattern(value);
            }
        }
    }
}
