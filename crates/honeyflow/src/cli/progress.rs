//! The progress of a long command on stderr: a line that changes in place on a terminal, elsewhere a new line every few
//! seconds.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::output::Output;

const LINE_EVERY: Duration = Duration::from_secs(5);

pub struct ProgressLine<'o> {
    bar: ProgressBar,
    output: &'o Output,
    is_terminal: bool,
    said_at: Instant,
}

impl ProgressLine<'_> {
    pub fn new(output: &Output) -> ProgressLine<'_> {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        ProgressLine { bar, output, is_terminal: io::stderr().is_terminal(), said_at: Instant::now() }
    }

    pub fn say(&mut self, text: String) {
        if !self.is_terminal && self.said_at.elapsed() >= LINE_EVERY {
            self.said_at = Instant::now();
            self.output.note(&text);
        }
        self.bar.set_message(text);
    }

    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}
