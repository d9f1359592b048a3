//! All codes of the program in one list: failures, log lines, problems of the configuration and refusals of the API.
//! `honeyflow explain --code` and the page `docs/reference/failures.md` are made from it.
//!
//! Invariant: no code occurs twice in one table, so a code and its table name exactly one entry.

use std::fmt::Write;

use honeyflow_runtime::{Class, Code};
use honeyflow_workflow::problem::{Severity, nearest};
use serde_json::{Value, json};

use crate::codes;

/// The tables of failures, one per crate that declares codes.
const FAILURES: &[&[Code]] = &[
    honeyflow_runtime::codes::ALL,
    honeyflow_hive::codes::ALL,
    honeyflow_hive_sqlite::codes::ALL,
    #[cfg(feature = "postgres")]
    honeyflow_hive_postgres::codes::ALL,
    #[cfg(feature = "mysql")]
    honeyflow_hive_mysql::codes::ALL,
    #[cfg(feature = "redis")]
    honeyflow_hive_redis::codes::ALL,
    honeyflow_store::codes::ALL,
    honeyflow_store_sqlite::codes::ALL,
    #[cfg(feature = "postgres")]
    honeyflow_store_postgres::codes::ALL,
    honeyflow_source_outbox::codes::ALL,
    honeyflow_step::codes::ALL,
    honeyflow_evaluate::codes::ALL,
    honeyflow_step_control::codes::ALL,
    honeyflow_step_http::codes::ALL,
    honeyflow_sink::codes::ALL,
    honeyflow_sink_tantivy::codes::ALL,
    honeyflow_sink_cassandra::codes::ALL,
    honeyflow_engine::codes::ALL,
    honeyflow_api::codes::ALL,
    codes::ALL,
];

/// The tables of problems.
const PROBLEMS: &[&[Code<Severity>]] =
    &[honeyflow_workflow::codes::problem::ALL, honeyflow_sink_cassandra::codes::problem::ALL, codes::problem::ALL];

const OPENING: &str = "# Failures

Every failure, problem and refusal has a code that never changes; `honeyflow explain --code CODE` shows its entry.

`honeyflow check --reference=failures` generates this page from the tables in which the codes are declared.
";

const SECTIONS: &[Section] = &[
    Section {
        title: "Failures",
        about: "The class says what the engine does: `retry` backs off and tries again without limit, `retry-after` waits as \
                long as the target asked, `reject` tries a few times and then parks the event, `fatal` stops the \
                workflow or the node. A command prints the code of its failure in brackets: `error[no-connection]: …`.",
        kinds: &[Kind::Failure],
        class: "class",
    },
    Section {
        title: "Alarms and notices",
        about: "Lines of the log, in the field `code`. Alarms come from the engine, notices from the hive.",
        kinds: &[Kind::Alarm, Kind::Notice],
        class: "kind",
    },
    Section {
        title: "Problems of the configuration",
        about: "What `honeyflow check` reports. If a database refuses a statement of the configuration, the problem has \
                the code of that failure.",
        kinds: &[Kind::Problem],
        class: "severity",
    },
    Section {
        title: "Refusals of the HTTP API",
        about: "The field `error.code` of an answer.",
        kinds: &[Kind::Refusal],
        class: "status",
    },
    Section {
        title: "Reasons of the readiness check",
        about: "The field `reasons[].code` of `GET /ready`. With the status 200 the node can be used, but something is \
                wrong.",
        kinds: &[Kind::Readiness],
        class: "status",
    },
];

struct Section {
    title: &'static str,
    about: &'static str,
    kinds: &'static [Kind],
    /// The title of the second column.
    class: &'static str,
}

/// The table in which a code is declared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Failure,
    Alarm,
    Notice,
    Problem,
    Refusal,
    Readiness,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Failure => "failure",
            Kind::Alarm => "alarm",
            Kind::Notice => "notice",
            Kind::Problem => "problem",
            Kind::Refusal => "refusal",
            Kind::Readiness => "readiness",
        }
    }
}

/// The description of one code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub kind: Kind,
    pub code: &'static str,
    /// The classes of a failure, the severity of a problem, the HTTP status of an answer; empty for log lines.
    pub classes: Vec<String>,
    pub meaning: &'static str,
    pub remedy: &'static str,
}

impl Entry {
    pub fn json(&self) -> Value {
        json!({
            "code": self.code,
            "kind": self.kind.name(),
            "classes": self.classes,
            "meaning": self.meaning,
            "remedy": self.remedy,
        })
    }

    pub fn text(&self) -> String {
        let classes: String = self.classes.iter().map(|class| format!(", {class}")).collect();
        let Entry { kind, code, meaning, remedy, .. } = self;
        format!("{code} ({}{classes})\nmeaning   {meaning}\nremedy    {remedy}\n", kind.name())
    }
}

/// Returns all entries: failures first, then the other tables; each table is sorted by code.
pub fn all() -> Vec<Entry> {
    let mut entries = Vec::new();
    for table in FAILURES {
        add(&mut entries, Kind::Failure, table, |class| class_name(*class).to_owned());
    }
    add(&mut entries, Kind::Alarm, honeyflow_engine::codes::alarm::ALL, |()| String::new());
    add(&mut entries, Kind::Notice, honeyflow_hive::codes::notice::ALL, |()| String::new());
    for table in PROBLEMS {
        add(&mut entries, Kind::Problem, table, |severity| severity_name(*severity).to_owned());
    }
    add(&mut entries, Kind::Refusal, honeyflow_api::codes::refusal::ALL, ToString::to_string);
    add(&mut entries, Kind::Readiness, honeyflow_api::codes::readiness::ALL, ToString::to_string);
    entries.sort_by_key(|entry| (entry.kind, entry.code));
    entries
}

fn add<C>(entries: &mut Vec<Entry>, kind: Kind, codes: &[Code<C>], shown: impl Fn(&C) -> String) {
    entries.extend(codes.iter().map(|code| Entry {
        kind,
        code: code.name,
        classes: code.classes.iter().map(&shown).collect(),
        meaning: code.meaning,
        remedy: code.remedy,
    }));
}

/// The class as tables and JSON name it.
fn class_name(class: Class) -> &'static str {
    match class {
        Class::Retry => "retry",
        Class::RetryAfter => "retry-after",
        Class::Reject => "reject",
        Class::Fatal => "fatal",
    }
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// Returns the code that is most similar to `written`, if one is similar enough.
pub fn nearest_code(written: &str) -> Option<&'static str> {
    nearest(written, all().iter().map(|entry| entry.code))
}

/// Returns the reference page.
pub fn markdown() -> String {
    let mut page = OPENING.to_owned();
    let entries = all();
    for Section { title, about, kinds, class } in SECTIONS {
        let _ =
            write!(page, "\n## {title}\n\n{about}\n\n| code | {class} | meaning | what to do |\n|---|---|---|---|\n");
        let mut shown: Vec<&Entry> = entries.iter().filter(|entry| kinds.contains(&entry.kind)).collect();
        shown.sort_by_key(|entry| entry.code);
        for Entry { kind, code, classes, meaning, remedy } in shown {
            let class = if classes.is_empty() {
                kind.name().to_owned()
            } else {
                classes.iter().map(|class| format!("`{class}`")).collect::<Vec<_>>().join(", ")
            };
            let _ = writeln!(page, "| `{code}` | {class} | {} | {} |", cell(meaning), cell(remedy));
        }
    }
    page
}

/// A vertical bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn no_code_is_declared_twice_in_its_table() {
        let entries = all();
        for pair in entries.windows(2) {
            assert_ne!((pair[0].kind, pair[0].code), (pair[1].kind, pair[1].code));
        }
    }

    #[test]
    fn codes_are_kebab_case_and_described_by_sentences() {
        for Entry { code, meaning, remedy, .. } in all() {
            let is_kebab = code.split('-').all(|part| {
                !part.is_empty() && part.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
            });
            assert!(is_kebab, "{code}");
            for text in [meaning, remedy] {
                assert!(text.ends_with('.') && text.starts_with(|first: char| !first.is_lowercase()), "{code}: {text}");
            }
        }
    }

    #[test]
    fn a_code_may_occur_in_several_tables() {
        let of_code = all().into_iter().filter(|entry| entry.code == "bad-limit");
        let kinds: Vec<Kind> = of_code.map(|entry| entry.kind).collect();
        assert_eq!(kinds, [Kind::Failure, Kind::Problem, Kind::Refusal]);
        assert_eq!(nearest_code("index-mising"), Some("index-missing"));
        assert_eq!(nearest_code("quite-another-thing"), None);
    }

    #[test]
    #[cfg(all(feature = "postgres", feature = "mysql", feature = "redis"))]
    fn the_reference_of_failures_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/failures.md");
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == markdown(),
            "write it again: cargo run -- check --reference=failures > docs/reference/failures.md"
        );
    }
}
