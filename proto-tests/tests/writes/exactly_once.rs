//! Retryable inserts on bucket collections: a failure at any internal command leaves every item stored once,
//! and the resent command gets the reply of a first success.
//!
//! [`races`] runs another writer between two internal commands. [`broken_connections`] breaks the connection
//! to mongod at each internal command. [`attempts`] does so for other writes, and runs two attempts at one
//! command concurrently. [`crashes`] kills proxies at random. [`removals`] has another writer change a page
//! before an item is removed from it. [`push_records`] has the page of a push packed, filled or removed before
//! the retry. [`labels`] compares the labels of errors.

mod attempts;
mod broken_connections;
mod crashes;
mod labels;
mod push_records;
mod races;
mod removals;
mod resent;
mod two_proxies;
mod writers;
