//! Each compressor's data to the bytes they stand for. Does not know what those are.
//!
//! The size that a sender announces was checked against the limit and against what its data can possibly
//! hold. It is still the sender's word: memory grows as output comes, except with snappy, whose data cannot
//! lie by much.

use std::io::Cursor;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::wire::compressor::Compressor;

/// The data are not the compressor's, or not of the announced size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The first memory for the output, unless the input is large: most messages need no more.
const FIRST_STEP_BYTES: usize = 64 * 1024;
/// How much larger than its input an output is taken to be at first.
const USUAL_RATIO: usize = 8;
/// How much more memory each attempt at zstd gets than the one before it.
const NEXT_STEP_RATIO: usize = 4;

/// Window sizes, as powers of two, between which zstd's first bytes are read as a stream. The lower is the
/// format's least; with the upper, 8 MiB, a stream of any usual compression level is read.
const WINDOW_LOGS: (u32, u32) = (10, 23);

/// Appends the `size` bytes that `input` stands for.
///
/// On an error `output` holds some of them. Its capacity does not become more than one byte larger than it
/// needs.
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

/// The first `count` of the bytes that `input` stands for. `None` when they cannot be had without the others;
/// whether `input` is well formed is then for [`inflate`] to say.
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
            // Neither at its end nor short of room: the input is cut off.
            Ok(_) if output.len() < output.capacity() => return Err(Malformed),
            Ok(_) if output.len() > end => return Err(Malformed),
            Ok(_) => {
                // One byte more than there should be shows an output that is too long.
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

/// In one call and not as a stream, as mongod does it: a stream needs the window that the sender chose, up to
/// 128 MiB, beside its output. Where the memory does not suffice it begins anew with more, at most 4/3 of the
/// work.
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
