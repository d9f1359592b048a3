//! Rewrites `$keys` for PostgreSQL: a parenthesised select over arrays of text, one per key part, cast to the columns'
//! types. Therefore `in $keys` and `join $keys k` both work, and any number of keys needs one bound value per key part.

use honeyflow_event::key;
use honeyflow_runtime::Failure;
use honeyflow_store::{KeyColumn, KeyType, Statement, keys};

use crate::{key_text, literal, load::PreparedStatement};

/// Returns the document statement with `$keys` rewritten, ready for execution.
pub(crate) fn document(statement: &Statement) -> Result<String, Failure> {
    keys::rewrite(statement, &row_set(&statement.key))
}

/// Wraps a document statement so that each row returns its key's parts, its numbers of type `numeric` with all digits,
/// and its JSON.
pub(crate) fn as_json(document: &str, statement: &Statement, prepared: &PreparedStatement) -> String {
    let column = |name: &str| format!("document.{}", literal::name(name));
    let key = statement.result_key.iter().map(|part| key_text::of_type(&column(&part.name), prepared.kind(&part.name)));
    let numerics = prepared.numerics().map(|name| format!("{}::text", column(name)));
    let list = |items: Vec<String>| format!("array[{}]::text[]", items.join(", "));
    let (key, numerics) = (list(key.collect()), list(numerics.collect()));
    format!("select {key}, {numerics}, row_to_json(document)::text from ({document}\n) as document")
}

/// Returns the statement that reads bound keys and writes each as the database would.
pub(crate) fn canonical(columns: &[KeyColumn]) -> String {
    let texts =
        columns.iter().map(|column| key_text::of_column(&format!("k.{}", literal::name(&column.name)), column.kind));
    let texts = texts.collect::<Vec<_>>().join(", ");
    format!("select array[{texts}]::text[] from {} as k", row_set(columns))
}

/// Wraps a document statement so that it returns one row of nulls under the result's column names if no keys are bound:
/// this shows the statement's columns without executing it for any key.
pub(crate) fn shape(document: &str) -> String {
    format!("select shape.* from (select 1) as one left join lateral ({document}\n) as shape on true")
}

/// Returns the edge statement for one page: the distinct key texts above a bound one, in the order of their bytes.
/// `types` are the types of its columns; each column is a part of the container's key.
pub(crate) fn expansion(statement: &Statement, types: &[String]) -> Result<String, Failure> {
    let reached = document(statement)?;
    let names: Vec<String> = (1..=types.len()).map(|n| format!("part{n}")).collect();
    let part_text = |(name, kind): (&String, &String)| {
        let plain = key_text::of_type(name, kind);
        if types.len() == 1 { plain } else { format!(r"replace(replace({plain}, E'\\', E'\\\\'), '|', E'\\|')") }
    };
    let key_text = names.iter().zip(types).map(part_text).collect::<Vec<_>>().join(" || '|' || ");
    let present = names.iter().map(|name| format!("{name} is not null")).collect::<Vec<_>>().join(" and ");
    let (names, after) = (names.join(", "), statement.key.len() + 1);
    let limit = after + 1;
    Ok(format!(
        "with reached({names}) as ({reached}\n),
         keyed as (select distinct ({key_text}) collate \"C\" as key from reached where {present})
         select key from keyed where ${after}::text is null or key > ${after}::text collate \"C\" order by key limit ${limit}"
    ))
}

fn row_set(columns: &[KeyColumn]) -> String {
    let names: Vec<String> = (1..=columns.len()).map(|n| format!("part{n}")).collect();
    let selected = columns
        .iter()
        .zip(&names)
        .map(|(column, part)| format!("{} as {}", key_text::value(part, column.kind), literal::name(&column.name)));
    let arrays: Vec<String> = (1..=columns.len()).map(|n| format!("${n}::text[]")).collect();
    let selected = selected.collect::<Vec<_>>().join(", ");
    format!("(select {selected} from unnest({}) as part({}))", arrays.join(", "), names.join(", "))
}

/// The keys of a batch as bound arrays, one per key part.
pub(crate) struct Batch {
    pub parts: Vec<Vec<String>>,
}

impl Batch {
    pub fn new(columns: &[KeyColumn]) -> Batch {
        Batch { parts: vec![Vec::new(); columns.len()] }
    }

    /// Adds a key, or adds nothing and returns what is wrong with it.
    pub fn push(&mut self, columns: &[KeyColumn], key: &str) -> Result<(), String> {
        let texts = key::split(key, columns.len()).ok_or("wrong number of parts")?;
        for (column, text) in columns.iter().zip(&texts) {
            check(column, text)?;
        }
        for (part, text) in self.parts.iter_mut().zip(texts) {
            part.push(text);
        }
        Ok(())
    }
}

fn check(column: &KeyColumn, text: &str) -> Result<(), String> {
    let kind = match column.kind {
        KeyType::Integer => "an integer as the database writes it",
        KeyType::Text | KeyType::Named(_) => "a text without zero bytes",
        KeyType::Blob => "lower-case hex",
        KeyType::Uuid => "a UUID in lower case",
    };
    let fits = column.kind.can_be(text) && !text.contains('\0');
    if fits { Ok(()) } else { Err(format!("`{}` is not {kind}", column.name)) }
}
