//! Tables and transcripts from a trace.
