//! Writes the proposal as `honeyflow.toml`, with a comment on the purpose of each part.

use std::fmt::Write;

use super::{Edge, EdgeBy, Entity, Proposal};

/// The parts of the file that do not depend on the tables.
pub struct Frame<'a> {
    /// The command line, without any password.
    pub command: &'a str,
    pub source: &'a str,
    /// The address as written into the file: without password, or a reference.
    pub url: &'a str,
    /// The prefix of the index names.
    pub index_prefix: &'a str,
}

pub fn toml(proposal: &Proposal, frame: &Frame<'_>) -> String {
    let mut page = format!(
        "# Written by `{}`. Edit it freely; `honeyflow check` checks it against the database.\n\
         # All keys: docs/reference/configuration.md\n\n\
         [node]\n\
         data   = \"data\"              # folder of the indexes\n\
         listen = \"127.0.0.1:7171\"    # dashboard and API, reachable from this machine only\n\n\
         # The source of events. Triggers write each change into the table honeyflow_outbox, in the same transaction.\n\
         [source.{}]\nurl = {}\n",
        comment(frame.command),
        frame.source,
        text(frame.url)
    );
    for entity in &proposal.entities {
        write_entity(&mut page, entity, frame);
    }
    page
}

fn write_entity(page: &mut String, entity: &Entity, frame: &Frame<'_>) {
    let name = &entity.name;
    let _ = write!(page, "\n\n# {}\n", "-".repeat(78));
    let _ = writeln!(page, "# {name}: how its documents are built. `$keys` stands for the keys of a whole batch.");
    let _ = writeln!(page, "[entity.{name}]");
    let _ = writeln!(page, "source   = {}", text(frame.source));
    let _ = writeln!(page, "table    = {}", text(&entity.table));
    let _ = writeln!(page, "key      = {}", texts(&entity.key));
    let _ = writeln!(page, "columns  = {}   # a change of other columns makes no event", texts(&entity.columns));
    if !entity.json.is_empty() {
        let _ = writeln!(page, "json     = {}   # these contain JSON", texts(&entity.json));
    }
    let _ = writeln!(page, "document = \"\"\"\n{}\"\"\"", long_text(&entity.document));
    for edge in &entity.edges {
        write_edge(page, name, edge);
    }
    let _ = writeln!(page, "\n[sink.{name}]\nurl   = {}", text(&format!("tantivy:{}{name}", frame.index_prefix)));
    let fields: Vec<String> =
        entity.fields.iter().map(|(field, kind)| format!("{} = \"{}\"", key(field), kind.word())).collect();
    let _ = writeln!(page, "field = {{ {} }}", fields.join(", "));
    let _ = writeln!(
        page,
        "\n[workflow.{name}]\non = [{{ source = {}, entity = \"{name}\" }}]\n\
         step.load  = {{ use = \"sql.load\" }}\n\
         step.index = {{ use = \"search.index\", needs = [\"load\"], into = \"{name}\" }}",
        text(frame.source)
    );
}

fn write_edge(page: &mut String, entity: &str, edge: &Edge) {
    let _ = writeln!(page, "\n[[entity.{entity}.edge]]   # {}", comment(&edge.why));
    let _ = writeln!(page, "table   = {}", text(&edge.table));
    let _ = writeln!(page, "columns = {}", texts(&edge.columns));
    let _ = match &edge.by {
        EdgeBy::Key(columns) => writeln!(page, "key     = {}", texts(columns)),
        EdgeBy::To(statement) => writeln!(page, "to      = {}", text(statement)),
    };
}

/// Writes a basic string of TOML.
pub fn text(text: &str) -> String {
    let mut written = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => written.push_str("\\\""),
            '\\' => written.push_str("\\\\"),
            '\n' => written.push_str("\\n"),
            '\t' => written.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(written, "\\u{:04X}", u32::from(c));
            }
            c => written.push(c),
        }
    }
    written.push('"');
    written
}

/// The content of a multi-line string, with its line breaks.
fn long_text(long: &str) -> String {
    let lines: Vec<String> = long
        .split('\n')
        .map(|line| {
            let escaped = text(line);
            // A single quotation mark, as in quoted identifiers, needs no escape here.
            escaped[1..escaped.len() - 1].replace("\\\"", "\"").replace("\"\"\"", "\"\"\\\"")
        })
        .collect();
    let joined = lines.join("\n");
    if joined.ends_with('"') { format!("{joined}\n") } else { joined }
}

fn texts(all: &[String]) -> String {
    format!("[{}]", all.iter().map(|one| text(one)).collect::<Vec<_>>().join(", "))
}

fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { name.to_owned() } else { text(name) }
}

/// Replaces control characters, because a line break would end the comment.
fn comment(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
