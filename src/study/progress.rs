//! What a user sees while a study runs: a bar on a terminal, plain lines elsewhere.
//!
//! Not a source of numbers: tables are made from the trace.

use crate::trace::{CallRecord, Outcome};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Told what happens, in order.
pub trait Progress {
    /// The session starts: `rows` selected, `done` of them ended before.
    fn start(&mut self, rows: usize, done: usize);
    /// A call is committed.
    fn call_done(&mut self, record: &CallRecord);
    /// A row has ended; `detail` says why when no call of it does.
    fn row_done(&mut self, key: &str, outcome: Outcome, detail: Option<&str>);
    /// The engine has made a step; `decoded` is its count of new tokens so far.
    fn tick(&mut self, decoded: u64);
    /// The session is over.
    fn finish(&mut self);
}

/// Says nothing.
pub struct Silent;

impl Progress for Silent {
    fn start(&mut self, _: usize, _: usize) {}
    fn call_done(&mut self, _: &CallRecord) {}
    fn row_done(&mut self, _: &str, _: Outcome, _: Option<&str>) {}
    fn tick(&mut self, _: u64) {}
    fn finish(&mut self) {}
}

/// Writes to stderr.
pub struct Display {
    bar: Option<ProgressBar>,
    out: Box<dyn Write>,
    started: Instant,
    last_line: Instant,
    rows: usize,
    done: usize,
    done_before: usize,
    calls: u64,
    prompt_tokens: u64,
    decoded: u64,
}

/// Seconds between two plain lines at least.
const LINE_EVERY: Duration = Duration::from_secs(5);

impl Display {
    /// A bar when stderr is a terminal, else plain lines.
    pub fn stderr() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = terminal.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{bar:10} {pos}/{len} rows  {msg}") {
                bar.set_style(style.progress_chars("━╸ "));
            }
            bar
        });
        Self::new(bar, Box::new(std::io::stderr()))
    }

    fn new(bar: Option<ProgressBar>, out: Box<dyn Write>) -> Self {
        let now = Instant::now();
        Self {
            bar,
            out,
            started: now,
            last_line: now,
            rows: 0,
            done: 0,
            done_before: 0,
            calls: 0,
            prompt_tokens: 0,
            decoded: 0,
        }
    }

    fn rates(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(0.001);
        let per_second = |n: u64| n as f64 / seconds;
        format!(
            "{} calls, {:.2}/s  {:.0} tok/s in, {:.1} out  ETA {}",
            self.calls,
            per_second(self.calls),
            per_second(self.prompt_tokens),
            per_second(self.decoded),
            self.eta(seconds),
        )
    }

    fn eta(&self, seconds: f64) -> String {
        let now = self.done - self.done_before;
        match now {
            0 => "?".into(),
            _ => clock(seconds / now as f64 * (self.rows - self.done) as f64),
        }
    }

    fn line(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            // A closed stderr must not stop a study.
            None => drop(writeln!(self.out, "{text}")),
        }
    }
}

/// `90` as `1:30`.
fn clock(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        hours => format!("{hours}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

impl Progress for Display {
    fn start(&mut self, rows: usize, done: usize) {
        (self.rows, self.done, self.done_before) = (rows, done, done);
        self.started = Instant::now();
        if done > 0 {
            self.line(&format!("resuming: {done} of {rows} rows are done"));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(rows as u64);
            bar.set_position(done as u64);
            bar.enable_steady_tick(Duration::from_millis(200));
        }
    }

    fn call_done(&mut self, record: &CallRecord) {
        self.calls += 1;
        if record.reused_from.is_none() {
            self.prompt_tokens += record.prompt_tokens.len() as u64;
        }
    }

    fn row_done(&mut self, key: &str, outcome: Outcome, detail: Option<&str>) {
        self.done += 1;
        let mark = if outcome == Outcome::Accepted { "+" } else { "-" };
        let mut text = format!("{mark} {key}  {}", outcome.name());
        if let Some(detail) = detail {
            text += &format!(": {detail}");
        }
        match &self.bar {
            Some(bar) => bar.set_position(self.done as u64),
            None => text += &format!("  [{}/{} rows]", self.done, self.rows),
        }
        self.line(&text);
    }

    fn tick(&mut self, decoded: u64) {
        self.decoded = decoded;
        match &self.bar {
            Some(bar) => bar.set_message(self.rates()),
            None if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                let text = format!("  {}/{} rows  {}", self.done, self.rows, self.rates());
                self.line(&text);
            }
            None => {}
        }
    }

    fn finish(&mut self) {
        let text = format!(
            "{}/{} rows in {}: {}",
            self.done,
            self.rows,
            clock(self.started.elapsed().as_secs_f64()),
            self.rates()
                .rsplit_once("  ETA")
                .map_or(String::new(), |(head, _)| head.to_owned()),
        );
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.line(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_reads_as_minutes_and_hours() {
        assert_eq!(
            [clock(0.4), clock(90.0), clock(3_661.0)],
            ["0:00", "1:30", "1:01:01"]
        );
    }
}
