//! `mongoshape setup --pack`: plain documents put into pages, and what is refused, broken off, or disturbed.

mod broken_off;
mod disturbed;
mod late;
mod packed;
mod random;
mod refused;
mod world;
