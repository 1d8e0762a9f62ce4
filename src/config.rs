//! From a TOML file and the environment to values that are right, or to all mistakes at once.
