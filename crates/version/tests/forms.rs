//! What is compressed comes back, whatever the edit; what somebody made up does no harm.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bytes::Bytes;
use crypto::{RecordId, Suite};
use proptest::prelude::*;
use version::{
    Bases, Codec, Codecs, FORM_BYTES_MAX, FORM_HEAD_BYTES_MAX, Form, ObjectKey, SPLICE,
    VALUE_BYTES_MAX, ValueKind, Version, VersionError, View, ZSTD, expand,
};

const SUITE: Suite = Suite::Holdfast1;

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let hashes = (0..length.div_ceil(32) as u64)
        .flat_map(|i| SUITE.hash(&[i.to_be_bytes(), seed.to_be_bytes()].concat()));
    hashes.take(length).collect()
}

fn put(base: &RecordId, value: Vec<u8>) -> Version {
    Version {
        object: ObjectKey::new([7; 32]),
        bases: Bases::one(*base),
        l: 300,
        kind: ValueKind::Bytes,
        value: value.into(),
    }
}

/// What an application, or a user, does to a value.
#[derive(Clone, Debug)]
enum Edit {
    Overwrite { at: usize, bytes: Vec<u8> },
    Insert { at: usize, bytes: Vec<u8> },
    Remove { at: usize, bytes: usize },
    Scatter { every: usize },
    Append(Vec<u8>),
    Replace(Vec<u8>),
}

fn edits() -> impl Strategy<Value = Edit> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..120);
    prop_oneof![
        (any::<usize>(), bytes()).prop_map(|(at, bytes)| Edit::Overwrite { at, bytes }),
        (any::<usize>(), bytes()).prop_map(|(at, bytes)| Edit::Insert { at, bytes }),
        (any::<usize>(), 0..200_usize).prop_map(|(at, bytes)| Edit::Remove { at, bytes }),
        (1..40_usize).prop_map(|every| Edit::Scatter { every }),
        bytes().prop_map(Edit::Append),
        bytes().prop_map(Edit::Replace),
    ]
}

fn edited(mut value: Vec<u8>, edit: Edit) -> Vec<u8> {
    let within = |at: usize| at % (value.len() + 1);
    match edit {
        Edit::Overwrite { at, bytes } => {
            let at = within(at);
            let until = value.len().min(at + bytes.len());
            value.splice(at..until, bytes);
        }
        Edit::Insert { at, bytes } => {
            let at = within(at);
            value.splice(at..at, bytes);
        }
        Edit::Remove { at, bytes } => {
            let at = within(at);
            let until = value.len().min(at + bytes);
            value.drain(at..until);
        }
        Edit::Scatter { every } => value.iter_mut().step_by(every).for_each(|byte| *byte ^= 1),
        Edit::Append(bytes) => value.extend(bytes),
        Edit::Replace(bytes) => value = bytes,
    }
    value
}

/// Bits turned over, to be refused or, where nobody can tell, to make another value of the same length.
fn expand_any(form: &Bytes, codecs: &Codecs, base: &[u8]) -> Option<Bytes> {
    let form = Form::decode(form).ok()?;
    assert!(form.value_bytes <= VALUE_BYTES_MAX);
    let bytes = form.expand(codecs, base).ok()?;
    let view = View::decode(&bytes).expect("what comes out is a version");
    assert_eq!(view.value.len(), form.value_bytes);
    Some(bytes)
}

proptest! {
    #[test]
    fn what_was_compressed_comes_back(
        seed: u64,
        length in 0..3000_usize,
        edits in proptest::collection::vec(edits(), 0..6),
        against_base: bool,
    ) {
        let codecs = Codecs::new();
        let base = noise(seed, length);
        let value = edits.into_iter().fold(base.clone(), edited);
        let ancestor = RecordId::new([5; 32]);
        let parent = if against_base { ancestor } else { RecordId::new([6; 32]) };
        let version = put(&parent, value);
        let (view, plain) = (version.view(), version.encode());
        let mut forms = vec![];
        if let Some(form) = codecs.compress(&view, &ancestor, &base) {
            prop_assert!(form.len() < plain.len(), "{} of {}", form.len(), plain.len());
            forms.push(form);
        }
        for codec in [SPLICE, ZSTD] {
            forms.extend(codecs.compress_by(codec, &view, &ancestor, &base).unwrap());
        }
        for bytes in forms {
            let form = Form::decode(&bytes).unwrap();
            prop_assert_eq!(form.encode(), bytes);
            prop_assert_eq!(form.ancestor, ancestor);
            let expanded = expand(&form, &codecs, &base).unwrap();
            prop_assert_eq!(&expanded, &plain);
        }
    }

    #[test]
    fn any_bits_expand_to_the_stated_length_or_not_at_all(
        seed: u64,
        edit in edits(),
        flips in proptest::collection::vec((any::<usize>(), 0..8_u32), 1..4),
    ) {
        let codecs = Codecs::new();
        let base = noise(seed, 400);
        let version = put(&RecordId::new([5; 32]), edited(base.clone(), edit));
        for codec in [SPLICE, ZSTD] {
            let form = codecs.compress_by(codec, &version.view(), &RecordId::new([5; 32]), &base);
            let Some(form) = form.unwrap() else { continue };
            let mut other = form.to_vec();
            for (at, bit) in &flips {
                let at = at % other.len();
                other[at] ^= 1_u8 << bit;
            }
            expand_any(&other.into(), &codecs, &base);
            expand_any(&form, &codecs, &noise(seed ^ 1, 300));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..250)) {
        let codecs = Codecs::new();
        expand_any(&bytes.clone().into(), &codecs, &bytes);
    }
}

/// The paper's workload: 1,000-byte values, of which a tenth changes. The arithmetic of the decision.
#[test]
fn the_delta_workload_costs_what_was_computed() {
    let codecs = Codecs::new();
    let (base, ancestor) = (noise(1, 1000), RecordId::new([5; 32]));
    let mut value = base.clone();
    value[300..400].copy_from_slice(&noise(2, 100));
    let version = put(&ancestor, value);
    let form = codecs.compress(&version.view(), &ancestor, &base).unwrap();
    assert_eq!(form[0], SPLICE);
    assert!(form.len() <= 1 + 32 + 32 + 1 + 2 + 1 + 2 + 106, "{}", form.len());
    // A tenth in single bytes: still a comparison, and under half.
    let mut value = base.clone();
    value.iter_mut().step_by(10).for_each(|byte| *byte ^= 0xff);
    let version = put(&ancestor, value);
    let form = codecs.compress(&version.view(), &ancestor, &base).unwrap();
    assert_eq!(form[0], SPLICE);
    assert!(form.len() <= 71 + 2 + 300 + 2, "{}", form.len());
    // What moved is found by zstd; what has nothing in common stays plain.
    let version = put(&ancestor, [&noise(3, 50)[..], &base].concat());
    let form = codecs.compress(&version.view(), &ancestor, &base).unwrap();
    assert_eq!(form[0], ZSTD);
    assert!(form.len() < 250, "{}", form.len());
    let version = put(&ancestor, noise(4, 1000));
    assert_eq!(codecs.compress(&version.view(), &ancestor, &base), None);
    let version = put(&ancestor, vec![]);
    assert_eq!(codecs.compress(&version.view(), &ancestor, &base), None);
}

#[test]
fn forms_that_lie_are_refused() {
    let (base, ancestor) = (noise(1, 100), RecordId::new([5; 32]));
    let codecs = Codecs::new();
    let version = put(&ancestor, base.clone());
    let good = codecs.compress(&version.view(), &ancestor, &base).unwrap();
    let changed = |at: usize, with: &[u8]| {
        let mut bytes = good.to_vec();
        bytes.splice(at..at + with.len(), with.iter().copied());
        Form::decode(&bytes.into())
    };
    assert!(changed(0, &good[..1]).is_ok());
    let flags = 1 + 32 + 32;
    assert_eq!(good[flags], 0b101);
    assert!(changed(flags, &[0b100]).is_err(), "a root is on no ancestor");
    assert!(changed(flags, &[0b111]).is_err(), "three bases");
    assert!(changed(flags, &[0b1101]).is_err(), "an unknown flag");
    assert!(changed(flags, &[0]).is_err(), "a root of some depth");
    assert!(changed(flags + 3, &[4]).is_err(), "an unknown kind");
    assert!(changed(flags + 3, &[2]).is_err(), "a tombstone with a value");
    assert!(changed(flags + 1, &[0x80, 0]).is_err(), "a depth in a longer form");
    let written = Form::decode(&good).unwrap();
    let mut twice = good.to_vec();
    twice[flags] = 0b001;
    twice.splice(flags + 1..flags + 1, *written.ancestor.as_bytes());
    assert!(
        Form::decode(&twice.into()).is_err(),
        "an ancestor that is written though it is the base"
    );
    // A length over the bound is refused before anything is made.
    let mut long = good[..flags + 4].to_vec();
    long.extend([0x81, 0x80, 0x80, 1]);
    assert!(matches!(Form::decode(&long.into()), Err(VersionError::TooLarge { .. })));
    let over = Bytes::from(vec![1; FORM_BYTES_MAX + 1]);
    assert!(matches!(Form::decode(&over), Err(VersionError::TooLarge { .. })));
    for length in 0..good.len() {
        assert!(expand_any(&good.slice(..length), &codecs, &base).is_none(), "{length}");
    }
    assert!(good.len() < FORM_HEAD_BYTES_MAX + 10);
    let other = Form { codec: 3, ..Form::decode(&good).unwrap() };
    assert!(matches!(other.expand(&codecs, &base), Err(VersionError::Codec(3))));
}

/// An application's own pair, as one would write it for sealed values: here a key stream stands for the cipher.
struct Sealed {
    codecs: Codecs,
    key: [u8; 32],
}

impl Sealed {
    /// The nonce stands before what is sealed under it.
    fn apply(&self, nonce: &[u8], bytes: &[u8]) -> Vec<u8> {
        let stream =
            (0_u64..).flat_map(|i| SUITE.hash(&[&self.key[..], nonce, &i.to_be_bytes()].concat()));
        bytes.iter().zip(stream).map(|(byte, key)| byte ^ key).collect()
    }

    fn seal(&self, nonce: [u8; 8], plain: &[u8]) -> Vec<u8> {
        [&nonce[..], &self.apply(&nonce, plain)].concat()
    }

    fn open(&self, sealed: &[u8]) -> Option<([u8; 8], Vec<u8>)> {
        let (nonce, bytes) = sealed.split_first_chunk::<8>()?;
        Some((*nonce, self.apply(nonce, bytes)))
    }
}

impl Codec for Sealed {
    fn compress(&self, base: &[u8], value: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
        let (Some((_, base)), Some((nonce, value))) = (self.open(base), self.open(value)) else {
            return false;
        };
        let mut delta = Vec::new();
        if !version::splice::compress(&base, &value, value.len(), &mut delta) {
            return false;
        }
        // The delta is sealed in its turn; the value's own nonce comes along, so that its bytes come back.
        let inner = [&nonce[..], &delta].concat();
        let sealed = self.seal(*b"a delta.", &inner);
        out.extend_from_slice(&sealed);
        sealed.len() <= room
    }

    fn expand(&self, base: &[u8], delta: &[u8], length: usize, out: &mut Vec<u8>) -> bool {
        let made = (|| {
            let (_, base) = self.open(base)?;
            let (_, inner) = self.open(delta)?;
            let (nonce, delta) = inner.split_first_chunk::<8>()?;
            let mut value = Vec::new();
            let length = length.checked_sub(8)?;
            version::splice::expand(&base, delta, length, &mut value).then_some(())?;
            Some(self.seal(*nonce, &value))
        })();
        out.extend(made.iter().flatten());
        made.is_some()
    }
}

#[test]
fn an_applications_own_codec_sees_through_its_seal() {
    let sealed = |codecs| Sealed { codecs, key: [1; 32] };
    let application = Arc::new(sealed(Codecs::new()));
    let codecs = application.codecs.clone().with(200, application.clone()).unwrap();
    let plain = noise(1, 1000);
    let base = application.seal(*b"nonce  1", &plain);
    let mut edited = plain.clone();
    edited[10..20].fill(0);
    let ancestor = RecordId::new([5; 32]);
    let version = put(&ancestor, application.seal(*b"nonce  2", &edited));
    let view = version.view();
    // Two sealed values have nothing in common for whoever has no key.
    assert_eq!(codecs.compress(&view, &ancestor, &base), None);
    let form = codecs.compress_by(200, &view, &ancestor, &base).unwrap().unwrap();
    assert!(form.len() < 150, "{}", form.len());
    let form = Form::decode(&form).unwrap();
    assert_eq!(form.expand(&codecs, &base).unwrap(), version.encode());
    assert!(matches!(form.expand(&Codecs::new(), &base), Err(VersionError::Codec(200))));
    for number in [0, SPLICE, ZSTD, 127, 200] {
        assert!(codecs.clone().with(number, application.clone()).is_err(), "{number}");
    }
}

/// A codec that makes something else than it says is not believed.
struct Liar;

impl Codec for Liar {
    fn compress(&self, _: &[u8], value: &[u8], _: usize, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(value);
        out.push(0);
        true
    }

    fn expand(&self, _: &[u8], delta: &[u8], _: usize, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(delta);
        true
    }
}

#[test]
fn a_codec_that_lies_is_not_believed() {
    let codecs = Codecs::new().with(255, Arc::new(Liar)).unwrap();
    let ancestor = RecordId::new([5; 32]);
    let version = put(&ancestor, noise(1, 100));
    let compressed = codecs.compress_by(255, &version.view(), &ancestor, b"").unwrap();
    assert_eq!(compressed, None, "longer than the value");
    let (object, bases) = (version.object, version.bases);
    let delta = Bytes::from(noise(1, 99));
    let kind = ValueKind::Bytes;
    let form = Form { codec: 255, ancestor, object, bases, l: 300, kind, value_bytes: 100, delta };
    assert!(matches!(form.expand(&codecs, b""), Err(VersionError::Delta { .. })));
}
