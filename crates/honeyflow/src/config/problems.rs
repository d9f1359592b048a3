//! Formats problems with their place in the file: all at once, sorted, each with its line, a caret and a hint.
//!
//! A problem has a path; here it gets line and column. The output must contain neither secrets nor terminal control
//! characters.

use std::{fmt::Write, path::Path};

use honeyflow_workflow::{Problem, Severity};
use serde::Serialize;

use super::{
    secret,
    tree::{Node, Span, SyntaxError, Tree},
};
use crate::{codes, escape};

/// A longer line is cut to the part around the place.
const LINE_CHARACTERS_MAX: usize = 132;

pub struct Report {
    file: String,
    text: String,
    entries: Vec<Entry>,
}

struct Entry {
    span: Span,
    line: usize,
    column: usize,
    problem: Problem,
}

#[derive(Serialize)]
struct JsonEntry<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    severity: &'static str,
    code: &'static str,
    path: &'a str,
    message: String,
    help: Option<String>,
}

impl Report {
    pub fn new(file: &Path, text: &str, tree: &Node, problems: Vec<Problem>) -> Report {
        let entries = problems.into_iter().map(|problem| (place(tree, text, &problem), problem));
        Report::sorted(file, text, entries.collect())
    }

    /// The file is not TOML.
    pub fn broken(file: &Path, text: &str, places: Vec<SyntaxError>) -> Report {
        let entries = places.into_iter().map(|broken| {
            let problem = Problem::error("", codes::problem::BAD_TOML, broken.message);
            (broken.span, problem)
        });
        let mut report = Report::sorted(file, text, entries.collect());
        // Further errors on the same line are nearly always a consequence of the first.
        report.entries.dedup_by_key(|entry| entry.line);
        report
    }

    /// The file cannot be read, so there is no text to show.
    pub fn unreadable(file: &Path, reason: &str, help: &str) -> Report {
        let problem = Problem::error("", codes::problem::UNREADABLE, reason).help(help);
        Report::sorted(file, "", vec![(0..0, problem)])
    }

    fn sorted(file: &Path, text: &str, problems: Vec<(Span, Problem)>) -> Report {
        let mut entries: Vec<Entry> = problems
            .into_iter()
            .map(|(span, problem)| {
                let (line, column) = position(text, span.start);
                Entry { span, line, column, problem }
            })
            .collect();
        entries.sort_by(|one, other| {
            (one.span.start, &one.problem.path, one.problem.code).cmp(&(
                other.span.start,
                &other.problem.path,
                other.problem.code,
            ))
        });
        entries.dedup_by(|one, other| one.span == other.span && one.problem == other.problem);
        Report { file: file.display().to_string(), text: text.to_owned(), entries }
    }

    pub fn errors(&self) -> usize {
        self.entries.iter().filter(|entry| entry.problem.severity == Severity::Error).count()
    }

    pub fn warnings(&self) -> usize {
        self.entries.len() - self.errors()
    }

    /// The report as text for people.
    pub fn text(&self, colour: bool) -> String {
        let paint = Paint { colour };
        let blocks: Vec<String> = self.entries.iter().map(|entry| self.block(entry, &paint)).collect();
        blocks.join("\n")
    }

    /// The report as a JSON array for programs, in the same order.
    pub fn json(&self) -> serde_json::Value {
        let shown = self.entries.iter().map(|entry| JsonEntry {
            file: &self.file,
            line: entry.line,
            column: entry.column,
            severity: word(entry.problem.severity),
            code: entry.problem.code,
            path: &entry.problem.path,
            message: secret::redact(&entry.problem.message),
            help: entry.problem.help.as_deref().map(secret::redact),
        });
        serde_json::to_value(shown.collect::<Vec<_>>()).unwrap_or_default()
    }

    fn block(&self, entry: &Entry, paint: &Paint) -> String {
        let Entry { line, column, problem, .. } = entry;
        let severity = match problem.severity {
            Severity::Error => paint.red(&format!("error[{}]", problem.code)),
            Severity::Warning => paint.yellow(&format!("warning[{}]", problem.code)),
        };
        let place = if self.text.is_empty() {
            escape::line(&self.file).into_owned()
        } else {
            format!("{}:{line}:{column}", escape::line(&self.file))
        };
        let message = secret::redact(&problem.message);
        let mut block = format!("{}: {severity}: {}\n", paint.bold(&place), paint.bold(&escape::lines(&message)));
        let gutter = line.to_string().len().max(4);
        if let Some((source, before, marked)) = self.source_line(entry) {
            let bar = paint.blue("│");
            let number = paint.blue(&format!("{line:>gutter$}"));
            let carets = paint.caret(problem.severity, &"^".repeat(marked));
            let _ = writeln!(block, "{number} {bar} {source}");
            let _ = writeln!(block, "{:gutter$} {bar} {:before$}{carets}", "", "");
        }
        if let Some(help) = &problem.help {
            let help = secret::redact(help);
            let help = escape::lines(&help).replace('\n', &format!("\n{:1$}", "", gutter + 9));
            let _ = writeln!(block, "{:gutter$} {} {help}", "", paint.cyan("= help:"));
        }
        block
    }

    /// The line as shown, the number of characters before the marked place, and the number of marked characters.
    fn source_line(&self, entry: &Entry) -> Option<(String, usize, usize)> {
        let start = entry.span.start.min(self.text.len());
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        let end = entry.span.end.clamp(start, line_end);
        if self.text.is_empty() {
            return None;
        }
        let before = shown(&self.text[line_start..start]);
        let (marked, after) = if entry.problem.code == codes::problem::SECRET_INLINE {
            // The rest of the line may be part of the secret.
            ("\"***\"".to_owned(), String::new())
        } else {
            (shown(&self.text[start..end]), shown(self.text[end..line_end].trim_end()))
        };
        let marked_characters = marked.chars().count().max(1);
        let whole = secret::redact(&format!("{before}{marked}{after}"));
        Some(window(&whole, before.chars().count(), marked_characters))
    }
}

/// Replaces tabs by four spaces and escapes terminal control characters.
fn shown(text: &str) -> String {
    escape::line(&text.replace('\t', "    ")).into_owned()
}

/// Cuts a long line to the part around the marked place.
fn window(line: &str, before: usize, marked: usize) -> (String, usize, usize) {
    let length = line.chars().count();
    if length <= LINE_CHARACTERS_MAX {
        // Hiding a password may have shortened the line.
        return (line.trim_end().to_owned(), before, marked.min(length.saturating_sub(before)).max(1));
    }
    let from = before.saturating_sub(LINE_CHARACTERS_MAX / 2).min(length - LINE_CHARACTERS_MAX);
    let mut part: String = line.chars().skip(from).take(LINE_CHARACTERS_MAX).collect();
    let mut before = before - from;
    if from > 0 {
        part.insert(0, '…');
        before += 1;
    }
    if from + LINE_CHARACTERS_MAX < length {
        part.push('…');
    }
    let marked = marked.min(part.chars().count().saturating_sub(before)).max(1);
    (part, before, marked)
}

/// The place where a problem is shown: the key, if the problem is about a key or a whole table, otherwise the value.
fn place(tree: &Node, text: &str, problem: &Problem) -> Span {
    let (node, exact) = tree.find(&problem.path);
    let about_key = exact
        && matches!(
            problem.code,
            codes::problem::UNKNOWN_KEY
                | codes::problem::UNKNOWN_SECTION
                | codes::problem::BAD_NAME
                | codes::problem::MISSING_NAME
        );
    let is_header = text[node.span.start.min(text.len())..].starts_with('[') && matches!(node.value, Tree::Table(_));
    match (&node.key, &node.value) {
        (Some(key), _) if about_key => key.clone(),
        (Some(key), Tree::Table(_)) if !is_header => key.clone(),
        (Some(key), Tree::List(items)) if items.iter().any(|item| item.table().is_some()) => key.clone(),
        _ => node.span.clone(),
    }
}

/// Line and column of a byte offset; both start at 1, and columns count characters.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

struct Paint {
    colour: bool,
}

impl Paint {
    fn with(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    fn red(&self, text: &str) -> String {
        self.with("1;31", text)
    }

    fn yellow(&self, text: &str) -> String {
        self.with("1;33", text)
    }

    fn blue(&self, text: &str) -> String {
        self.with("34", text)
    }

    fn cyan(&self, text: &str) -> String {
        self.with("36", text)
    }

    fn caret(&self, severity: Severity, text: &str) -> String {
        match severity {
            Severity::Error => self.red(text),
            Severity::Warning => self.yellow(text),
        }
    }
}
