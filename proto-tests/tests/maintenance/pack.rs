//! `mongoshape setup --pack`: plain documents become pages. Refused, interrupted and disturbed runs.

mod broken_off;
mod disturbed;
mod late;
mod packed;
mod random;
mod refused;
mod world;
