//! An application's own merge function, and its own codec, which keeps sealed values small without anybody seeing them:
//! `cargo run -p author --example own_functions`.
//!
//! The merge function is handed to `Object::merge_with`. The codec is for an application's own disk and peers: it decrypts two
//! values, finds what differs, and encrypts that; whoever expands needs the same pair under the same number.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use crypto::{ContentKey, Suite};
use document::value;
use version::merge::{Merge, Merged, Value};
use version::{Bases, Codec, Codecs, Form, Hint, ObjectKey, ValueKind, Version, splice};

const SUITE: Suite = Suite::Holdfast1;
/// The codec's number: one of those that applications may take.
const OURS: u8 = 128;
/// What a delta is sealed as: no kind that a value has.
const DELTA_KIND: u8 = 255;

/// Votes, one name a line: those of both, without those that either took back. Never a conflict.
fn votes(v0: Option<Value<'_>>, v1: Value<'_>, v2: Value<'_>) -> Merged {
    let names = |value: Option<Value<'_>>| -> std::collections::BTreeSet<Vec<u8>> {
        let bytes = value.map_or(&[][..], |value| value.bytes);
        bytes.split(|byte| *byte == b'\n').filter(|name| !name.is_empty()).map(Vec::from).collect()
    };
    let (before, one, other) = (names(v0), names(Some(v1)), names(Some(v2)));
    let stays = |name: &&Vec<u8>| match before.contains(*name) {
        true => one.contains(*name) && other.contains(*name),
        false => true,
    };
    let all: std::collections::BTreeSet<&Vec<u8>> = one.union(&other).filter(stays).collect();
    Merged::bytes(all.into_iter().flat_map(|name| [&name[..], b"\n"].concat()).collect::<Vec<u8>>())
}

/// Decrypts, compresses and encrypts again.
struct SealedDeltas(ContentKey);

impl SealedDeltas {
    fn open(&self, sealed: &[u8]) -> Option<Bytes> {
        value::open(SUITE, &self.0, ValueKind::Bytes.number(), sealed).ok()
    }
}

impl Codec for SealedDeltas {
    fn compress(&self, base: &[u8], value: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
        let (Some(base), Some(value)) = (self.open(base), self.open(value)) else { return false };
        let mut delta = (value.len() as u32).to_be_bytes().to_vec();
        if !splice::compress(&base, &value, room, &mut delta) {
            return false;
        }
        match self.0.seal(SUITE, DELTA_KIND, &delta) {
            Ok(sealed) if sealed.len() <= room => {
                out.extend_from_slice(&sealed);
                true
            }
            _ => false,
        }
    }

    fn expand(&self, base: &[u8], delta: &[u8], length: usize, out: &mut Vec<u8>) -> bool {
        let opened = self.0.open_value(SUITE, DELTA_KIND, delta).ok();
        let (Some(base), Some(delta)) = (self.open(base), opened) else { return false };
        let Some((plain, delta)) = delta.split_first_chunk::<4>() else { return false };
        // Bounded before anything is allocated by what the delta says.
        let plain = u32::from_be_bytes(*plain) as usize;
        let mut value = Vec::new();
        if plain > value::VALUE_PLAINTEXT_BYTES_MAX
            || !splice::expand(&base, delta, plain, &mut value)
        {
            return false;
        }
        // Sealing is the same each time, so what comes out is the version's very bytes.
        match value::seal(SUITE, &self.0, ValueKind::Bytes.number(), &value) {
            Ok(sealed) if sealed.len() == length => {
                out.extend_from_slice(&sealed);
                true
            }
            _ => false,
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let [v0, v1, v2] = ["ada\nbob\n", "ada\nbob\neve\n", "ada\nzoe\n"].map(str::as_bytes);
    let merged = votes.merge(Some(Value::bytes(v0)), Value::bytes(v1), Value::bytes(v2));
    assert_eq!(merged, Merged::bytes("ada\neve\nzoe\n"));
    println!("merged: ada, eve, zoe");

    let key = ContentKey::from_bytes(&[7; 32]);
    let codecs = Codecs::new().with(OURS, Arc::new(SealedDeltas(key.clone())))?;
    // Text that does not compress by itself, so that what is saved is the delta's.
    let text: Vec<u8> = (0..64_u32).flat_map(|n| SUITE.hash(&n.to_be_bytes())).collect();
    let mut changed = text.clone();
    changed[100..110].copy_from_slice(b"0123456789");
    let sealed = |text: &[u8]| value::seal(SUITE, &key, ValueKind::Bytes.number(), text);
    let object = ObjectKey::new([1; 32]);
    let root =
        Version { object, bases: Bases::NONE, l: 0, kind: ValueKind::Bytes, value: sealed(&text)? };
    let (root_record, _) = root.record(SUITE, Hint::FIRST);
    let bases = Bases::one(root_record.id);
    let put = Version { bases, l: 1, value: sealed(&changed)?, ..root.clone() };
    let form = codecs.compress_by(OURS, &put.view(), &root_record.id, &root.value)?;
    let form = form.ok_or("the delta is not shorter")?;
    let expanded = Form::decode(&form)?.expand(&codecs, &root.value)?;
    assert_eq!(expanded, put.encode(), "the version's very bytes");
    println!("a sealed version of {} bytes is kept in {}", put.encode().len(), form.len());
    Ok(())
}
