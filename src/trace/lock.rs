//! One writer per run: a locked file that names its process.
//!
//! Not a pid file: the operating system drops the lock with the process, however it ends, so a stale one never
//! blocks.

use super::TraceError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

/// Held while a process writes to a run.
#[derive(Debug)]
pub struct RunLock {
    file: File,
}

impl RunLock {
    /// Takes the lock of the run in `dir`.
    ///
    /// # Errors
    /// [`TraceError::Locked`] with the other process's id, or the system's error.
    pub fn take(dir: &Path) -> Result<Self, TraceError> {
        let path = dir.join("lock");
        let io = |source| TraceError::Io {
            file: path.display().to_string(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let read = file.read_to_string(&mut pid);
                let pid = if read.is_ok() && !pid.trim().is_empty() {
                    pid.trim()
                } else {
                    "unknown"
                };
                return Err(TraceError::Locked {
                    run: dir.display().to_string(),
                    pid: pid.into(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        Ok(Self { file })
    }
}

impl Drop for RunLock {
    /// Unlocks at once: closing the file alone would leave the lock to any process being started just now, which has
    /// a copy of every open file until it runs its own program.
    fn drop(&mut self) {
        // What cannot be unlocked is unlocked with the process.
        let _ = self.file.unlock();
    }
}
