//! Retryable inserts on bucket collections: whatever breaks between two of the proxy's statements, every item
//! is stored once, and the answer to the resend is that of a first success.
//!
//! [`races`] lets another writer in at the worst moment, [`cuts`] breaks the way to mongod at each of the
//! proxy's commands in turn; [`attempts`] does so for other writes, and lets two attempts at one command run
//! at the same time; [`crashes`] kills proxies at random.

mod attempts;
mod crashes;
mod cuts;
mod races;
mod resent;
mod writers;
