//! Output of the commands: data to stdout, everything else to stderr; as a table for people or as JSON for programs.
//! Text that comes from data is escaped in one place, here (SE-30).

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::Fault;
use crate::escape;

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    Table,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Colour {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub format: Format,
    pub colour: Colour,
}

impl Output {
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    fn colours(&self, terminal: bool) -> bool {
        match self.colour {
            Colour::Always => true,
            Colour::Never => false,
            // https://no-color.org: the variable counts if it is set and not empty.
            Colour::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    pub fn colours_out(&self) -> bool {
        self.colours(io::stdout().is_terminal())
    }

    pub fn colours_err(&self) -> bool {
        self.colours(io::stderr().is_terminal())
    }

    /// Prints text that needs no escaping: our own, or already escaped.
    pub fn print(&self, text: &str) -> Result<(), Fault> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|_| Fault::Closed)
    }

    /// Prints one JSON object on one line. JSON escapes control characters itself.
    pub fn object(&self, value: &impl Serialize) -> Result<(), Fault> {
        let mut line = serde_json::to_string(value).unwrap_or_default();
        line.push('\n');
        self.print(&line)
    }

    /// Prints rows as a table, or as one JSON object per line.
    pub fn rows<T: Serialize, const N: usize>(
        &self,
        header: [&str; N],
        rows: &[T],
        cells: impl Fn(&T) -> [String; N],
    ) -> Result<(), Fault> {
        if self.is_json() {
            return rows.iter().try_for_each(|row| self.object(row));
        }
        if rows.is_empty() {
            return Ok(());
        }
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
        table.set_header(header.map(|title| {
            let cell = comfy_table::Cell::new(title);
            if self.colours_out() { cell.add_attribute(comfy_table::Attribute::Bold) } else { cell }
        }));
        for row in rows {
            table.add_row(cells(row).map(|cell| escape::line(&cell).into_owned()));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        if self.colours_out() {
            table.enforce_styling();
        }
        let lines: Vec<String> = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        self.print(&lines.concat())
    }

    /// Prints a message to stderr. An error while writing is ignored: there is no place to report it.
    pub fn note(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", escape::lines(text));
    }
}

/// Formats a duration in milliseconds for people: `1500` → `1.5 s`.
pub fn age(milliseconds: u64) -> String {
    match milliseconds {
        0..1000 => format!("{milliseconds} ms"),
        1000..60_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        60_000..3_600_000 => format!("{} min", milliseconds / 60_000),
        3_600_000..172_800_000 => format!("{} h", milliseconds / 3_600_000),
        _ => format!("{} d", milliseconds / 86_400_000),
    }
}

/// Returns the first line of the text, cut to `characters_max` characters.
pub fn brief(text: &str, characters_max: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= characters_max && line.len() == text.trim_end().len() {
        return line.to_owned();
    }
    let cut: String = line.chars().take(characters_max).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_long_texts_are_brief() {
        assert_eq!(age(20), "20 ms");
        assert_eq!(age(1500), "1.5 s");
        assert_eq!(age(7_200_000), "2 h");
        assert_eq!(brief("short", 10), "short");
        assert_eq!(brief("one\ntwo", 10), "one…");
        assert_eq!(brief("äöüäöü", 3), "äöü…");
    }
}
