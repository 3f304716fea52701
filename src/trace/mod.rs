//! The durable record of every call.
