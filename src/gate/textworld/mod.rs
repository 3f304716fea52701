//! TextWorld's `.json` games, natively.
