//! Listeners, limits, draining, upstream topology. Does not know what a command means.
