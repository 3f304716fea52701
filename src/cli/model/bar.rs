//! Progress of a pull or a check, on standard error.
//!
//! Not a log: it disappears on a terminal, and is a line every few seconds elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::megabytes;
use crate::model::fetch::Progress;

/// Progress on standard error: a bar on a terminal, a line every few seconds elsewhere.
#[derive(Debug, Default)]
pub struct Bar {
    bar: Option<ProgressBar>,
    what: String,
    done: u64,
    total: Option<u64>,
    said: Option<Instant>,
}

impl Bar {
    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            // A closed standard error is no reason to stop a pull.
            None => drop(writeln!(std::io::stderr().lock(), "{text}")),
        }
    }
}

impl Progress for Bar {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        (self.what, self.done, self.total, self.said) = (what.to_owned(), 0, total, Some(Instant::now()));
        if std::io::stderr().is_terminal() {
            let style =
                ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
            let bar = ProgressBar::new(total.unwrap_or(0)).with_message(what.to_owned());
            self.bar = Some(match style {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            });
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        } else if self
            .said
            .is_none_or(|said| said.elapsed() > Duration::from_secs(5))
        {
            self.said = Some(Instant::now());
            let total = self
                .total
                .map_or(String::new(), |total| format!(" of {}", megabytes(total)));
            self.line(&format!("{}: {}{total}", self.what, megabytes(self.done)));
        }
    }

    fn note(&mut self, line: &str) {
        self.line(line);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
