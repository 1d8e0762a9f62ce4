//! Items that get another time on a standalone, where nothing moves them: what is answered then, to whoever
//! reads meanwhile as well, and what the pages tell.

mod compared;
mod marks;
mod readers;
mod scene;
mod walks;
mod writers;
