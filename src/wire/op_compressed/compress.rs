//! Compresses bytes with each compressor.

use std::io::{self, Cursor};

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::wire::compressor::Compressor;

/// Appends the compressed form of `input`, at the level that mongod uses: the compressor's own
/// default.
///
/// # Errors
/// Out of memory only.
pub(crate) fn compress(compressor: Compressor, input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
    match compressor {
        Compressor::Snappy => snappy(input, output),
        Compressor::Zlib => zlib(input, output),
        Compressor::Zstd => zstd(input, output),
    }
}

fn snappy(input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
    let start = output.len();
    let most = snap::raw::max_compress_len(input.len());
    let place = super::append_zeros(output, most);
    let written = snap::raw::Encoder::new().compress(input, place)?;
    output.truncate(start.saturating_add(written));
    Ok(())
}

fn zlib(input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
    /// Room for the shortest stream, and for the compressor to make progress.
    const LEAST_STEP_BYTES: usize = 1024;
    let mut stream = Compress::new(Compression::default(), true);
    loop {
        // In proportion to the input, so that few steps are needed.
        output.reserve(LEAST_STEP_BYTES.max(input.len() / 4));
        let read = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let rest = input.get(read..).unwrap_or_default();
        if stream.compress_vec(rest, output, FlushCompress::Finish)? == Status::StreamEnd {
            return Ok(());
        }
    }
}

fn zstd(input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
    output.reserve(zstd::zstd_safe::compress_bound(input.len()));
    let mut place = Cursor::new(&mut *output);
    let start = place.get_ref().len();
    place.set_position(u64::try_from(start).unwrap_or(u64::MAX));
    zstd::bulk::Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL)?.compress_to_buffer(input, &mut place)?;
    Ok(())
}
