//! Lanes to rows; schedule, resume, progress.
