//! Task view and feedback to messages.
