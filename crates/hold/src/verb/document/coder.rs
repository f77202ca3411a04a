//! The erasure code, as sealing and opening stripes offline ask for it.

use bytes::Bytes;
use document::offline::stripes::{CodeFailure, Coder};
use erasure::{Code, Given, Wanted};

/// `crates/erasure`, on the best path that this machine has.
pub(super) struct Erasure;

impl Coder for Erasure {
    fn encode(&self, pages: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodeFailure> {
        let code = Code::new(pages.len(), pages.len() + parity.len())?;
        Ok(code.encode(pages, parity)?)
    }

    fn rebuild(
        &self,
        n: u32,
        bytes: usize,
        given: &[(u32, Bytes)],
        wanted: u32,
        out: &mut [u8],
    ) -> Result<(), CodeFailure> {
        let code = Code::new(given.len(), n as usize)?;
        let given: Vec<Given<'_>> =
            given.iter().map(|(index, bytes)| Given { index: *index as usize, bytes }).collect();
        let mut wanted = [Wanted { index: wanted as usize, bytes: out }];
        Ok(code.reconstruct(bytes, &given, &mut wanted)?)
    }
}
