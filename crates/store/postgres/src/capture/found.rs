//! What the database has now: the tables to capture with their columns, and our triggers and functions. One query reads
//! it all; the node's watch runs it every two seconds.

use std::collections::BTreeMap;

use serde_json::Value;

use super::trigger::{self, NAMES};
use crate::{
    driver::{Error, PgConnection},
    literal, row, session,
};

/// The prefix of a captured table's fingerprint in `honeyflow_meta`.
pub(super) const NOTE_HEAD: &str = "capture/";

#[derive(Debug)]
pub(crate) struct CaptureState {
    /// The schema of Honeyflow's tables.
    pub schema: String,
    /// The tables that are to be captured, under the names of the configuration.
    pub tables: BTreeMap<String, FoundTable>,
    /// Other tables that have triggers of ours.
    pub spare: Vec<SpareTable>,
    /// The fingerprints at the time when the triggers were last complete, by the table's name.
    pub notes: BTreeMap<String, Note>,
}

#[derive(Debug)]
pub(crate) struct FoundTable {
    pub schema: String,
    pub name: String,
    pub kind: String,
    pub persistence: String,
    pub inherits: bool,
    pub columns: Vec<FoundColumn>,
    /// Our triggers each with the version of its row in the catalogue.
    pub triggers: BTreeMap<String, String>,
    /// The body of our function, and the version of its row in the catalogue.
    pub function: Option<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct FoundColumn {
    pub name: String,
    /// The type as `pg_typeof` names it; the base type of a domain.
    pub kind: String,
    /// Type, collation and kind of generation, to compare.
    pub identity: String,
    /// Computed when it is read, so triggers do not see it.
    pub is_virtual: bool,
}

#[derive(Debug)]
pub(crate) struct SpareTable {
    pub schema: String,
    pub name: String,
    pub triggers: Vec<String>,
}

/// Fingerprints of the parts of a captured table: its used columns, each trigger, and the function.
pub(crate) type Note = BTreeMap<String, String>;

impl FoundTable {
    pub fn column(&self, name: &str) -> Option<&FoundColumn> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// Whether to read the fingerprints, which need Honeyflow's tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notes {
    Read,
    Leave,
}

pub(crate) async fn read(connection: &mut PgConnection, names: &[&str], notes: Notes) -> Result<CaptureState, Error> {
    let answers = session::run(connection, query(names, notes)).await?;
    let mut found =
        CaptureState { schema: String::new(), tables: BTreeMap::new(), spare: Vec::new(), notes: BTreeMap::new() };
    for row in answers.iter().flatten() {
        let (what, name) = (row::text(row, 0)?.unwrap_or_default(), row::text(row, 1)?.unwrap_or_default().to_owned());
        let value = row::text(row, 2)?.unwrap_or("null");
        let value = serde_json::from_str(value).map_err(|error| Error::Decode(Box::new(error)))?;
        match what {
            "schema" => found.schema = name,
            "note" => drop(found.notes.insert(name, note(&value))),
            "table" => drop(found.tables.insert(name, table(&value))),
            _ => found.spare.push(SpareTable {
                schema: text(&value, "schema"),
                triggers: texts(&value["triggers"]),
                name,
            }),
        }
    }
    Ok(found)
}

/// Returns rows of (what, name, JSON).
fn query(names: &[&str], notes: Notes) -> String {
    let wanted: Vec<String> = names
        .iter()
        .map(|name| {
            let parts = name.split('.').map(literal::name).collect::<Vec<_>>().join(".");
            let (whole, function) = (literal::text(&literal::name(name)), literal::text(&trigger::function_name(name)));
            format!(
                "({}, coalesce(to_regclass({whole}), to_regclass({})), {function})",
                literal::text(name),
                literal::text(&parts)
            )
        })
        .collect();
    let wanted = match &wanted[..] {
        [] => "select null::text, null::regclass, null::text where false".to_owned(),
        rows => format!("values {}", rows.join(", ")),
    };
    let noted = match notes {
        Notes::Leave => String::new(),
        Notes::Read => {
            let length = NOTE_HEAD.len();
            let name = format!("substr(name, {})", length + 1);
            format!(
                " union all select 'note', {name}, value from honeyflow_meta where left(name, {length}) = '{NOTE_HEAD}'"
            )
        }
    };
    let triggers = NAMES.map(literal::text).join(", ");
    format!(
        "with home as (
           select coalesce((select relnamespace from pg_class where oid = to_regclass('honeyflow_outbox')),
             current_schema()::regnamespace) as oid),
         wanted(name, oid, function) as ({wanted}),
         ours as (
           select t.tgrelid, t.tgname, concat_ws(' ', t.xmin, t.tgenabled, t.tgfoid, t.oid) as identity
           from pg_trigger t join pg_proc p on p.oid = t.tgfoid
           where t.tgname in ({triggers}) and not t.tgisinternal and p.pronamespace = (select oid from home)
             and p.proname like 'honeyflow\\_capture\\_%')
         select 'schema', (select nspname::text from pg_namespace where oid = (select oid from home)), null::text
         union all
         select 'table', w.name, json_build_object('schema', s.nspname, 'name', c.relname, 'kind', c.relkind,
           'persistence', c.relpersistence,
           'inherits', exists (select from pg_inherits i where c.oid in (i.inhparent, i.inhrelid)),
           'columns', (select json_agg(json_build_array(a.attname, format_type(b.oid, null),
               concat_ws(' ', a.attnum, a.atttypid, a.atttypmod, a.attcollation, a.attgenerated), a.attgenerated = 'v')
               order by a.attnum)
             from pg_attribute a join pg_type d on d.oid = a.atttypid
             join pg_type b on b.oid = case when d.typtype = 'd' then d.typbasetype else d.oid end
             where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
           'triggers', (select json_object_agg(o.tgname, o.identity) from ours o where o.tgrelid = c.oid),
           'function', (select json_build_array(p.prosrc, concat_ws(' ', p.xmin, p.oid)) from pg_proc p
             where p.proname = w.function and p.pronamespace = (select oid from home)))::text
         from wanted w join pg_class c on c.oid = w.oid join pg_namespace s on s.oid = c.relnamespace
         union all
         select 'spare', c.relname, json_build_object('schema', s.nspname, 'triggers', json_agg(o.tgname))::text
         from ours o join pg_class c on c.oid = o.tgrelid join pg_namespace s on s.oid = c.relnamespace
         where c.oid not in (select w.oid from wanted w where w.oid is not null)
         group by c.oid, c.relname, s.nspname{noted}"
    )
}

fn table(value: &Value) -> FoundTable {
    let columns = value["columns"].as_array().into_iter().flatten();
    let function = value["function"].as_array();
    FoundTable {
        schema: text(value, "schema"),
        name: text(value, "name"),
        kind: text(value, "kind"),
        persistence: text(value, "persistence"),
        inherits: value["inherits"] == true,
        columns: columns
            .map(|column| FoundColumn {
                name: string(&column[0]),
                kind: string(&column[1]),
                identity: string(&column[2]),
                is_virtual: column[3] == true,
            })
            .collect(),
        triggers: note(&value["triggers"]),
        function: function.map(|parts| (string(&parts[0]), string(&parts[1]))),
    }
}

fn note(value: &Value) -> Note {
    let parts = value.as_object().into_iter().flatten();
    parts.map(|(name, part)| (name.clone(), string(part))).collect()
}

fn text(value: &Value, name: &str) -> String {
    string(&value[name])
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(string).collect()
}
