use proptest::prelude::*;

use super::*;

fn metadata() -> EntryMetadata {
    let artifact = SchemaArtifact {
        group: "group".into(),
        project: "project".into(),
        path: "a/b".into(),
        name: "Name".into(),
        version: "1".into(),
    };
    EntryMetadata {
        info: ContentInfo {
            media_type: "text/plain".into(),
            filepath: "dir/file".into(),
            properties: BTreeMap::from([
                ("a".into(), vec![1]),
                (String::new(), vec![]),
                ("b".into(), vec![2; 300]),
            ]),
            schema: Some(artifact.clone()),
            data_dictionary: Some(artifact),
        },
        codec: CompressionCodec::ZstdChunks,
        ciphertext_size: 37,
        ciphertext_mac: [7; 32],
        uncompressed_size: 20,
        uncompressed_mac: [9; 32],
        whole_macs: WholeMacs::Tags,
    }
}

/// The top-level fields of encoded metadata, each with its key.
fn fields(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut out) = (bytes, Vec::new());
    while rest.has_remaining() {
        let before = rest;
        let (tag, wire_type) = decode_key(&mut rest).expect("our own");
        skip_field(wire_type, tag, &mut rest, DecodeContext::default()).expect("our own");
        out.push(before[..before.len() - rest.len()].to_vec());
    }
    out
}

#[test]
fn all_fields_round_trip() {
    let bytes = metadata().encode().expect("small");
    assert!(EntryMetadata::decode(&bytes).expect("our own") == metadata());
    assert_eq!(format!("{:?}", metadata()), "EntryMetadata(20 bytes, zstd-chunks)");
}

#[test]
fn fields_come_in_any_order_and_unknown_ones_are_skipped() {
    let mut parts = fields(&metadata().encode().expect("small"));
    parts.reverse();
    let mut bytes = parts.concat();
    // Field 99, twice, which a later release may know.
    bytes.extend_from_slice(&[0x98, 0x06, 1, 0x98, 0x06, 2]);
    assert!(EntryMetadata::decode(&bytes).expect("any order") == metadata());
}

#[test]
fn every_field_or_property_given_twice_is_refused() {
    let bytes = metadata().encode().expect("small");
    let parts = fields(&bytes);
    assert_eq!(parts.len(), 13);
    for part in parts {
        let twice = [&bytes[..], &part].concat();
        let refused = EntryMetadata::decode(&twice);
        assert!(matches!(refused, Err(MetadataError::Duplicate)), "{part:?}");
    }
    // Within a property (its name twice) and within a schema (its group twice).
    let name: &[u8] = &[0x3a, 6, 0x0a, 1, b'x', 0x0a, 1, b'y'];
    let group: &[u8] = &[0x4a, 6, 0x0a, 1, b'x', 0x0a, 1, b'y'];
    let plain = EntryMetadata { info: ContentInfo::default(), ..metadata() };
    for within in [name, group] {
        let bytes = [&plain.encode().expect("small")[..], within].concat();
        assert!(matches!(EntryMetadata::decode(&bytes), Err(MetadataError::Duplicate)));
    }
}

#[test]
fn values_that_cannot_be_are_refused() {
    let good = wire::Metadata::decode(&metadata().encode().expect("small")[..]).expect("our own");
    type Change = fn(&mut wire::Metadata);
    let changes: [Change; 7] = [
        |wire| wire.codec = 3,
        |wire| wire.whole_macs = 1,
        |wire| wire.whole_macs = 3,
        |wire| wire.ciphertext_mac = Bytes::new(),
        |wire| wire.ciphertext_mac = vec![0; 32].into(),
        |wire| wire.uncompressed_mac = vec![1; 33].into(),
        |wire| wire.uncompressed_mac = vec![0; 32].into(),
    ];
    for change in changes {
        let mut wire = good.clone();
        change(&mut wire);
        assert!(EntryMetadata::decode(&wire.encode_to_vec()).is_err());
    }
}

#[test]
fn metadata_is_bounded_both_ways() {
    let mut large = metadata();
    large.info.properties.insert("large".into(), vec![1; METADATA_BYTES_MAX]);
    assert!(matches!(large.encode(), Err(MetadataError::TooLarge { .. })));
    let refused = EntryMetadata::decode(&vec![0; METADATA_BYTES_MAX + 1]);
    assert!(matches!(refused, Err(MetadataError::TooLarge { .. })));
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = EntryMetadata::decode(&bytes);
    }

    #[test]
    fn any_info_round_trips(
        media_type in ".{0,40}",
        filepath in ".{0,40}",
        properties in proptest::collection::btree_map(
            ".{0,10}", proptest::collection::vec(any::<u8>(), 0..20), 0..10),
        sizes in any::<(u64, u64)>(),
    ) {
        let metadata = EntryMetadata {
            info: ContentInfo { media_type, filepath, properties, ..ContentInfo::default() },
            ciphertext_size: sizes.0,
            uncompressed_size: sizes.1,
            ..metadata()
        };
        let bytes = metadata.encode().expect("small");
        prop_assert!(EntryMetadata::decode(&bytes).expect("our own") == metadata);
    }
}
