//! Inflates the data of each compressor. Does not interpret the result.
//!
//! The announced size was checked against the limit and against the greatest size of the inflated data. It
//! may still be wrong, so memory grows with the output. The exception is snappy: its data expand at most 22
//! times, so a false size cannot waste much memory.

use std::io::Cursor;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::wire::compressor::Compressor;

/// The data are malformed, or do not have the announced size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The first allocation for the output, unless the input is large. Most messages need no more.
const FIRST_STEP_BYTES: usize = 64 * 1024;
/// The expected ratio of output to input, for the first allocation.
const USUAL_RATIO: usize = 8;
/// The growth of memory from one attempt at zstd to the next.
const NEXT_STEP_RATIO: usize = 4;

/// Window sizes, as powers of two, with which the beginning of zstd data is read as a stream. The
/// lower one is the format's least. With the upper one, 8 MiB, streams of all usual compression
/// levels can be read.
const WINDOW_LOGS: (u32, u32) = (10, 23);

/// Appends the `size` bytes that `input` expands to.
///
/// On an error `output` has some of them. Its capacity exceeds the needed size by at most one byte.
pub(super) fn inflate(
    compressor: Compressor,
    input: &[u8],
    size: usize,
    output: &mut Vec<u8>,
) -> Result<(), Malformed> {
    match compressor {
        Compressor::Snappy => snappy(input, size, output),
        Compressor::Zlib => zlib(input, size, output),
        Compressor::Zstd => zstd(input, size, output),
    }
}

/// The first `count` bytes that `input` expands to. `None` if they cannot be inflated without the
/// rest. [`inflate`] then reports whether `input` is well formed.
pub(super) fn inflate_head(compressor: Compressor, input: &[u8], size: usize, count: usize) -> Option<Vec<u8>> {
    match compressor {
        Compressor::Snappy => None,
        Compressor::Zlib => zlib_head(input, count),
        Compressor::Zstd => zstd_head(input, size, count),
    }
}

fn first_step(input: &[u8], size: usize) -> usize {
    let usual = input.len().saturating_mul(USUAL_RATIO);
    usual.max(FIRST_STEP_BYTES).min(size)
}

fn snappy(input: &[u8], size: usize, output: &mut Vec<u8>) -> Result<(), Malformed> {
    if snap::raw::decompress_len(input) != Ok(size) {
        return Err(Malformed);
    }
    let place = super::append_zeros(output, size);
    let written = snap::raw::Decoder::new().decompress(input, place);
    if written == Ok(size) { Ok(()) } else { Err(Malformed) }
}

fn zlib(input: &[u8], size: usize, output: &mut Vec<u8>) -> Result<(), Malformed> {
    let end = output.len().saturating_add(size);
    output.reserve_exact(first_step(input, size));
    let mut stream = Decompress::new(true);
    loop {
        let rest = unread(input, &stream);
        match stream.decompress_vec(rest, output, FlushDecompress::None) {
            Ok(Status::StreamEnd) => break,
            // Neither at its end nor short of room: the input is incomplete.
            Ok(_) if output.len() < output.capacity() => return Err(Malformed),
            Ok(_) if output.len() > end => return Err(Malformed),
            Ok(_) => {
                // One additional byte detects an output that is too long.
                let missing = end.saturating_sub(output.len()).saturating_add(1);
                output.reserve_exact(output.len().max(FIRST_STEP_BYTES).min(missing));
            }
            Err(_) => return Err(Malformed),
        }
    }
    if output.len() == end && unread(input, &stream).is_empty() {
        Ok(())
    } else {
        Err(Malformed)
    }
}

fn unread<'a>(input: &'a [u8], stream: &Decompress) -> &'a [u8] {
    let read = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
    input.get(read..).unwrap_or_default()
}

fn zlib_head(input: &[u8], count: usize) -> Option<Vec<u8>> {
    let mut output = vec![0; count];
    let mut stream = Decompress::new(true);
    stream.decompress(input, &mut output, FlushDecompress::None).ok()?;
    let written = usize::try_from(stream.total_out()).ok()?;
    (written == count).then_some(output)
}

/// In one call and not as a stream, as mongod does it: a stream needs the sender's window, up to
/// 128 MiB, in addition to its output. If the memory is too small, the call is repeated with more,
/// which adds at most a third of the work.
fn zstd(input: &[u8], size: usize, output: &mut Vec<u8>) -> Result<(), Malformed> {
    let start = output.len();
    let position = u64::try_from(start).map_err(|_| Malformed)?;
    let mut decoder = zstd::bulk::Decompressor::new().map_err(|_| Malformed)?;
    let mut step = first_step(input, size);
    loop {
        output.truncate(start);
        output.reserve_exact(step);
        let mut place = Cursor::new(&mut *output);
        place.set_position(position);
        match decoder.decompress_to_buffer(input, &mut place) {
            Ok(written) if written == size => return Ok(()),
            Err(_) if step < size => step = step.saturating_mul(NEXT_STEP_RATIO).min(size),
            _ => return Err(Malformed),
        }
    }
}

fn zstd_head(input: &[u8], size: usize, count: usize) -> Option<Vec<u8>> {
    let (least, most) = WINDOW_LOGS;
    let window = size.checked_next_power_of_two()?.trailing_zeros().clamp(least, most);
    let mut decoder = Decoder::new().ok()?;
    decoder.set_parameter(DParameter::WindowLogMax(window)).ok()?;
    let mut output = vec![0; count];
    let mut place = OutBuffer::around(output.as_mut_slice());
    let mut input = InBuffer::around(input);
    while place.pos() < count {
        let before = (input.pos(), place.pos());
        decoder.run(&mut input, &mut place).ok()?;
        if (input.pos(), place.pos()) == before {
            return None;
        }
    }
    Some(output)
}
