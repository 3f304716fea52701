//! The study's statistics: pure, seeded functions on slices.
