use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn merged(name: &str, v0: Option<&str>, v1: &str, v2: &str) -> Result<String, String> {
    let value = |text: &'static str| Value::bytes(text.as_bytes());
    let leaked = |text: &str| value(Box::leak(text.to_owned().into_boxed_str()));
    run(name, v0.map(leaked), leaked(v1), leaked(v2))
}

fn run(name: &str, v0: Option<Value<'_>>, v1: Value<'_>, v2: Value<'_>) -> Result<String, String> {
    let merges = Merges::new();
    let merged = merge(merges.get(name).expect("it comes along"), v0, v1, v2);
    match merged.expect("a value of a good length") {
        Merged::Value { kind: ValueKind::Tombstone, .. } => Ok("deleted".into()),
        Merged::Value { value, .. } => Ok(String::from_utf8_lossy(&value).into_owned()),
        Merged::Conflict(conflict) => Err(conflict.reason.into_owned()),
    }
}

fn is(found: Result<String, String>, wanted: &str) {
    assert_eq!(found.as_deref(), Ok(wanted));
}

#[test]
fn logs_grow_by_both() {
    let append = |v0, v1, v2| merged("append", v0, v1, v2);
    is(append(Some("a"), "ab", "ac"), "abc");
    is(append(Some("a"), "a", "ac"), "ac");
    is(append(Some("a"), "ab", "ab"), "abb");
    is(append(None, "b", "c"), "bc");
    assert!(append(Some("a"), "b", "ac").is_err());
    assert!(append(Some("a"), "ab", "c").is_err());
}

#[test]
fn counters_count_what_both_counted() {
    let sum = |v0, v1, v2| merged("aggregate-sum", v0, v1, v2);
    is(sum(Some("10"), "12", "9"), "11");
    is(sum(Some("10"), "12", "12"), "14");
    is(sum(None, "1", "2"), "3");
    let (most, least) = (i64::MAX.to_string(), i64::MIN.to_string());
    is(sum(Some(&least), &least, &most), &most);
    assert!(sum(Some("0"), &most, "1").is_err());
    assert!(sum(Some(&most), &least, "0").is_err());
    for bad in ["", "+1", "01", "-0", "1 ", "1.5", "9223372036854775808", "ten"] {
        assert!(sum(Some("0"), bad, "1").is_err(), "{bad}");
        assert!(sum(Some(bad), "0", "1").is_err(), "{bad}");
    }
    is(merged("aggregate-min", Some("5"), "7", "-7"), "-7");
    is(merged("aggregate-max", Some("50"), "7", "-7"), "7");
}

#[test]
fn a_side_that_changed_nothing_yields_to_what_the_other_put() {
    for name in ["aggregate-sum", "aggregate-min", "aggregate-max"] {
        for other in ["9", "1"] {
            is(merged(name, Some("5"), "5", other), other);
            is(merged(name, Some("5"), other, "5"), other);
        }
    }
    is(merged("append", Some("a"), "a", "x"), "x");
    is(merged("append", Some("a"), "x", "a"), "x");
    // What both did alike counts twice all the same.
    is(merged("aggregate-sum", Some("5"), "6", "6"), "7");
    is(merged("aggregate-sum", Some("5"), "5", "5"), "5");
    is(merged("append", Some("a"), "ab", "ab"), "abb");
}

#[test]
fn one_is_chosen_the_same_by_all() {
    let one = |v0, v1, v2| merged("choose-one", v0, v1, v2);
    is(one(Some("z"), "a", "z"), "a");
    is(one(Some("z"), "z", "a"), "a");
    is(one(Some("z"), "a", "b"), "b");
    is(one(None, "b", "a"), "b");
    is(merged("choose-first", Some("z"), "a", "b"), "a");
    is(merged("choose-second", Some("z"), "a", "b"), "b");
}

#[test]
fn deletions_meet_changes() {
    let (was, new) = (Value::bytes(b"1"), Value::bytes(b"2"));
    let gone = Value::TOMBSTONE;
    for name in Merges::new().names() {
        let chosen = name.starts_with("choose");
        if name != "choose-second" {
            is(run(name, Some(was), gone, was), "deleted");
            is(run(name, Some(was), gone, gone), "deleted");
        }
        if name != "choose-first" {
            is(run(name, Some(was), was, gone), "deleted");
        }
        let beside = run(name, Some(was), new, gone);
        assert_eq!(beside.is_ok(), chosen, "{name}: {beside:?}");
    }
    is(run("choose-one", Some(was), gone, new), "2");
    // What was deleted before both is as if it had not been.
    is(run("append", Some(gone), was, new), "12");
    is(run("aggregate-sum", Some(gone), was, new), "3");
    // Entries and commits are chosen, never looked into.
    let id = [7; 32];
    let entry = Value { kind: ValueKind::Entry, bytes: &id };
    assert!(run("append", None, entry, was).is_err());
    assert!(run("three-way-map", Some(was), entry, new).is_err());
    assert_eq!(merge(&Choose::First, None, entry, was).ok(), Some(Merged::of(entry)));
}

#[test]
fn an_application_brings_its_own() {
    let longer = |_: Option<Value<'_>>, v1: Value<'_>, v2: Value<'_>| {
        Merged::of(if v1.bytes.len() > v2.bytes.len() { v1 } else { v2 })
    };
    let merges = Merges::new().with("longer", Arc::new(longer)).expect("a new name");
    let f = merges.get("longer").expect("it was registered");
    let chosen = merge(f, None, Value::bytes(b"long"), Value::bytes(b"x"));
    assert_eq!(chosen.ok(), Some(Merged::bytes(&b"long"[..])));
    for name in ["longer", "append", "", "two words", "t\u{e9}te"] {
        assert!(merges.clone().with(name, Arc::new(longer)).is_err(), "{name}");
    }
    assert_eq!(merges.names().count(), 10);
    // What no version can have is not taken from anybody.
    let huge = |_: Option<Value<'_>>, _: Value<'_>, _: Value<'_>| Merged::bytes(vec![0; 3 << 20]);
    let some = Value::bytes(b"");
    assert!(matches!(merge(&huge, None, some, some), Err(VersionError::TooLarge { .. })));
}

#[test]
fn maps_merge_by_field() {
    let map = |fields: &[(&'static str, &'static str)]| {
        map::encode(fields.iter().map(|(field, value)| (field.as_bytes(), value.as_bytes())))
    };
    let three = |v0: &Bytes, v1: &Bytes, v2: &Bytes| {
        ThreeWayMap.merge(Some(Value::bytes(v0)), Value::bytes(v1), Value::bytes(v2))
    };
    let was = map(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let first = map(&[("a", "2"), ("b", "1"), ("c", "1"), ("d", "1")]);
    let second = map(&[("e", "9"), ("a", "1"), ("c", "1"), ("d", "1")]);
    let both = map(&[("a", "2"), ("c", "1"), ("d", "1"), ("e", "9")]);
    assert_eq!(three(&was, &first, &second), Merged::bytes(both));
    let other = map(&[("a", "3"), ("b", "2"), ("d", "2")]);
    let clash = |field: &'static str| Clash::Field(Bytes::from_static(field.as_bytes()));
    let Merged::Conflict(conflict) = three(&was, &first, &other) else { panic!("a conflict") };
    assert_eq!(conflict.clashes, [clash("a"), clash("d")]);
    let Merged::Conflict(conflict) = three(&was, &second, &other) else { panic!("a conflict") };
    assert_eq!(conflict.clashes, [clash("d"), clash("b")], "a deleted field that was changed");
    let bad = Bytes::from_static(b"no map");
    assert!(matches!(three(&was, &first, &bad), Merged::Conflict(_)));
    let many = |value| {
        let names: Vec<[u8; 2]> = (0..300_u16).map(u16::to_be_bytes).collect();
        map::encode(names.iter().map(|name| (&name[..], value)))
    };
    let Merged::Conflict(conflict) = three(&was, &many(b"1"), &many(b"2")) else { panic!() };
    assert_eq!(conflict.clashes.len(), CLASHES_MAX);
}

#[test]
fn what_is_no_map_is_refused() {
    let good = map::encode([(&b"a"[..], &b"1"[..]), (b"", b"")]);
    assert_eq!(map::decode(&good).expect("its own").len(), 2);
    for length in (0..good.len()).filter(|length| ![2, 12].contains(length)) {
        assert!(map::decode(&good[..length]).is_err(), "{length}");
    }
    let twice = map::encode([(&b"a"[..], &b"1"[..]), (b"a", b"2")]);
    assert!(map::decode(&twice).is_err());
    assert!(map::decode(&[0, b'h', 0xff, 0xff, 0xff, 0xff]).is_err());
    assert!(map::decode(b"0h").is_err());
}

type Fields = BTreeMap<u8, u8>;

fn encoded(fields: &Fields) -> Bytes {
    let all: Vec<([u8; 1], [u8; 1])> = fields.iter().map(|(k, v)| ([*k], [*v])).collect();
    map::encode(all.iter().map(|(k, v)| (&k[..], &v[..])))
}

/// What three maps make, field by field: the model. `None` where a field clashes.
fn modelled(v0: &Fields, v1: &Fields, v2: &Fields) -> Option<Fields> {
    let mut made = Fields::new();
    for field in 0..=u8::MAX {
        let [was, first, second] = [v0, v1, v2].map(|fields| fields.get(&field));
        let value = match () {
            () if was == first => second,
            () if was == second || first == second => first,
            () => return None,
        };
        made.extend(value.map(|value| (field, *value)));
    }
    Some(made)
}

proptest! {
    #[test]
    fn maps_merge_as_the_model_does(
        v0 in proptest::collection::btree_map(0..6_u8, 0..3_u8, 0..6),
        v1 in proptest::collection::btree_map(0..6_u8, 0..3_u8, 0..6),
        v2 in proptest::collection::btree_map(0..6_u8, 0..3_u8, 0..6),
    ) {
        let [a, b, c] = [&v0, &v1, &v2].map(encoded);
        let merged = ThreeWayMap.merge(Some(Value::bytes(&a)), Value::bytes(&b), Value::bytes(&c));
        let found = match &merged {
            Merged::Value { value, .. } => {
                let fields = map::decode(value).expect("a map");
                Some(fields.iter().map(|(k, v)| (k[0], v[0])).collect::<Fields>())
            }
            Merged::Conflict(_) => None,
        };
        prop_assert_eq!(found, modelled(&v0, &v1, &v2));
    }

    /// No values make a function panic, and one side unchanged always yields, but for those that count or choose.
    #[test]
    fn any_values_merge_or_conflict(
        v0 in proptest::option::of(proptest::collection::vec(b'0'..b'4', 0..12)),
        v1 in proptest::collection::vec(b'0'..b'4', 0..12),
        v2 in proptest::collection::vec(b'0'..b'4', 0..12),
    ) {
        let (v0, v1, v2) = (v0.as_deref().map(Value::bytes), Value::bytes(&v1), Value::bytes(&v2));
        let merges = Merges::new();
        for name in merges.names() {
            let f = merges.get(name).expect("its name");
            let _ = f.merge(v0, v1, v2);
            if name.starts_with("three-way") || name == "choose-one" {
                prop_assert_eq!(f.merge(Some(v1), v1, v2), Merged::of(v2));
                prop_assert_eq!(f.merge(Some(v2), v1, v2), Merged::of(v1));
                let same = |merged: Merged| match merged {
                    Merged::Value { value, .. } => Some(value),
                    Merged::Conflict(_) => None,
                };
                prop_assert_eq!(same(f.merge(v0, v1, v2)), same(f.merge(v0, v2, v1)));
            }
        }
    }
}
