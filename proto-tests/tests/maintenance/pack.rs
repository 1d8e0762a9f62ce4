//! `mongoshape setup --pack`: plain documents become pages. Refused, interrupted and disturbed runs.

mod concurrent_clients;
mod delayed_commands;
mod fixture;
mod interrupted;
mod packed;
mod random;
mod refused;
