//! The driver: rows through engine, gates and trace until all have ended or the user stops.
//!
//! Not a second copy of the rules: what a row does next is `agent`'s, what is durable is `trace`'s. One thread steps
//! the engine and writes the trace; gates run on the rayon pool meanwhile. In what order rows advance is left open,
//! because nothing that is stored depends on it.

use super::StudyError;
use super::progress::Progress;
use crate::agent::{Asked, Next, NextPrompt, RowLoop, RowSpec, examine};
use crate::engine::{Completion, Engine, EngineError, Finished, Request, RequestId};
use crate::trace::store::Resumed;
use crate::trace::{CallRecord, Outcome, Trace};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// What a session did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rows of the selection.
    pub rows: usize,
    /// Rows of the selection that have ended, in this session or before.
    pub done: usize,
    /// Of these, accepted.
    pub accepted: usize,
    /// Of these, ended by an error.
    pub errors: usize,
    /// Whether the user stopped it.
    pub stopped: bool,
}

/// How a session runs.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Rows that are in work at once.
    pub concurrency: usize,
}

struct Driver<'a> {
    engine: &'a mut dyn Engine,
    trace: &'a mut Trace,
    progress: &'a mut dyn Progress,
    asked: HashMap<RequestId, (RowLoop, Asked)>,
    judged: (Sender<Judged>, Receiver<Judged>),
    judging: usize,
    summary: Summary,
}

/// A row with its examined completion; `Err` with what it said when a gate broke.
struct Judged {
    row: RowLoop,
    record: Result<CallRecord, String>,
}

/// Runs `rows` to their end, or until `stop` is set; what is committed stays.
///
/// # Errors
/// When the trace fails. An engine or gate that fails ends its row, not the run.
pub fn run(
    rows: &[Arc<RowSpec>],
    engine: &mut dyn Engine,
    trace: &mut Trace,
    progress: &mut dyn Progress,
    settings: Settings,
    stop: &AtomicBool,
) -> Result<Summary, StudyError> {
    let mut stored: HashMap<String, Resumed> = trace
        .resume()?
        .into_iter()
        .map(|r| (r.row.key.clone(), r))
        .collect();
    let mut driver = Driver {
        engine,
        trace,
        progress,
        asked: HashMap::new(),
        judged: channel(),
        judging: 0,
        summary: Summary {
            rows: rows.len(),
            ..Summary::default()
        },
    };
    let mut queue = VecDeque::new();
    for spec in rows {
        let Some(resumed) = stored.remove(&spec.planned.key) else {
            return Err(StudyError::OutOfStep {
                row: spec.planned.key.clone(),
            });
        };
        match resumed.outcome {
            Some(outcome) => driver.count(outcome),
            None => queue.push_back((spec.clone(), resumed)),
        }
    }
    driver.progress.start(rows.len(), driver.summary.done);
    let result = driver.drive(queue, settings.concurrency.max(1), stop);
    driver.summary.stopped = stop.load(Ordering::SeqCst);
    driver.progress.finish();
    result.map(|()| driver.summary)
}

impl Driver<'_> {
    fn drive(
        &mut self,
        mut queue: VecDeque<(Arc<RowSpec>, Resumed)>,
        concurrency: usize,
        stop: &AtomicBool,
    ) -> Result<(), StudyError> {
        loop {
            if stop.load(Ordering::SeqCst) {
                // What has been judged is committed; what the engine is computing will be computed again.
                while self.judging > 0 {
                    let judged = self.judged.1.recv();
                    if let Ok(judged) = judged {
                        self.take(judged, stop)?;
                    }
                }
                return Ok(());
            }
            while self.asked.len() + self.judging < concurrency {
                let Some((spec, resumed)) = queue.pop_front() else {
                    break;
                };
                self.begin(spec, resumed, stop)?;
            }
            while let Ok(judged) = self.judged.1.try_recv() {
                self.take(judged, stop)?;
            }
            if self.engine.pending() > 0 {
                for finished in self.engine.step() {
                    self.finished(finished)?;
                }
                self.progress.tick(self.engine.stats().decoded);
            } else if self.judging > 0 {
                if let Ok(judged) = self.judged.1.recv() {
                    self.take(judged, stop)?;
                }
            } else if self.asked.is_empty() && queue.is_empty() {
                return Ok(());
            }
        }
    }

    fn begin(&mut self, spec: Arc<RowSpec>, resumed: Resumed, stop: &AtomicBool) -> Result<(), StudyError> {
        let row = RowLoop::new(spec, resumed.calls);
        if let Some(first) = row.first() {
            return self.ask(row, first, stop);
        }
        let key = row.spec().planned.key.clone();
        match resumed.committed.and_then(|committed| row.next(committed)) {
            Some(next) => self.follow(row, next, stop),
            None => Err(StudyError::OutOfStep { row: key }),
        }
    }

    fn follow(&mut self, row: RowLoop, next: Next, stop: &AtomicBool) -> Result<(), StudyError> {
        match next {
            Next::Prompt(prompt) => self.ask(row, prompt, stop),
            Next::Done(outcome) => {
                self.progress.row_done(&row.spec().planned.key, outcome, None);
                self.count(outcome);
                Ok(())
            }
        }
    }

    fn ask(&mut self, row: RowLoop, next: NextPrompt, stop: &AtomicBool) -> Result<(), StudyError> {
        if stop.load(Ordering::SeqCst) {
            return Ok(());
        }
        let prompt = match self.engine.encode(next.messages()) {
            Ok(prompt) => prompt,
            Err(error) => return self.end(&row, &error),
        };
        let reusable = row.reusable(&prompt);
        let mut asked = next.asked(prompt);
        if let Some((call, completion)) = reusable {
            asked.reused_from = Some(call);
            self.judge(row, asked, completion);
            return Ok(());
        }
        let spec = row.spec();
        let request = Request {
            row: spec.planned.key.clone(),
            call: asked.call,
            seed: spec.planned.seed,
            prompt: asked.prompt.clone(),
            sampling: spec.sampling.clone(),
        };
        let id = self.engine.submit(request);
        self.asked.insert(id, (row, asked));
        Ok(())
    }

    fn finished(&mut self, finished: Finished) -> Result<(), StudyError> {
        let Some((row, asked)) = self.asked.remove(&finished.id) else {
            return Ok(());
        };
        match finished.result {
            Ok(completion) => {
                self.judge(row, asked, completion);
                Ok(())
            }
            Err(error) => self.end(&row, &error),
        }
    }

    /// Sends a completion through parser and gates on the pool.
    fn judge(&mut self, row: RowLoop, asked: Asked, completion: Completion) {
        let out = self.judged.0.clone();
        self.judging += 1;
        rayon::spawn(move || {
            let examined = catch_unwind(AssertUnwindSafe(|| {
                examine(row.spec(), asked, completion, row.last_plan())
            }));
            let record = match examined {
                Ok(Ok(record)) => Ok(record),
                Ok(Err(error)) => Err(error.to_string()),
                Err(panic) => {
                    let said = panic.downcast_ref::<String>().map(String::as_str);
                    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
                    Err(format!(
                        "a gate panicked: {}",
                        said.unwrap_or("it did not say why")
                    ))
                }
            };
            // The receiver is gone only when the run has failed already.
            let _ = out.send(Judged { row, record });
        });
    }

    /// Commits a judged call, then builds what follows from the proof.
    fn take(&mut self, judged: Judged, stop: &AtomicBool) -> Result<(), StudyError> {
        self.judging -= 1;
        let Judged { mut row, record } = judged;
        let planned = row.spec().planned.clone();
        let record = match record {
            Ok(record) => record,
            Err(said) => {
                self.trace.end_row(&planned, Outcome::GateError, &said)?;
                self.progress
                    .row_done(&planned.key, Outcome::GateError, Some(&said));
                self.count(Outcome::GateError);
                return Ok(());
            }
        };
        let committed = self.trace.commit(&planned, &record, row.ends_with(&record))?;
        self.progress.call_done(&record);
        row.push(record);
        match row.next(committed) {
            Some(next) => self.follow(row, next, stop),
            None => Err(StudyError::OutOfStep { row: planned.key }),
        }
    }

    /// Ends a row that the engine could not serve. A full context is the end of its budget, not a fault.
    fn end(&mut self, row: &RowLoop, error: &EngineError) -> Result<(), StudyError> {
        let outcome = match error {
            EngineError::Context { .. } => Outcome::BudgetExhausted,
            _ => Outcome::EngineError,
        };
        let planned = &row.spec().planned;
        let said = error.to_string();
        self.trace.end_row(planned, outcome, &said)?;
        self.progress.row_done(&planned.key, outcome, Some(&said));
        self.count(outcome);
        Ok(())
    }

    fn count(&mut self, outcome: Outcome) {
        self.summary.done += 1;
        self.summary.accepted += usize::from(outcome == Outcome::Accepted);
        self.summary.errors += usize::from(!outcome.counts());
    }
}
