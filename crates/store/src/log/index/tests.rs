use proptest::prelude::*;

use super::*;

fn location(segment: u32) -> Location {
    let (placed, damaged, form) = (false, false, false);
    Location { segment, offset: 64, length: 1, placed, damaged, form, kind: Kind::Page }
}

/// The id of this number, of which so many first bytes are alike.
fn alike(bytes: usize, number: u32) -> RecordId {
    let mut id = [0xa5; 32];
    let hash = blake3::hash(&number.to_be_bytes());
    id[bytes..].copy_from_slice(&hash.as_bytes()[..32 - bytes]);
    RecordId::new(id)
}

fn longest(node: &Node) -> usize {
    match node {
        Node::Table(table) => table.len(),
        Node::Row(nodes) => nodes.iter().map(longest).max().unwrap_or(0),
    }
}

/// Ids that somebody chose to begin alike are in no longer tables than others, and a part of a list sorts no more for them.
#[test]
fn ids_ground_to_begin_alike_make_no_table_long() {
    for bytes in [0, 2, 5] {
        let mut records = Records::default();
        let mut all: Vec<RecordId> =
            (0..3 * TABLE_RECORDS_MAX as u32).map(|number| alike(bytes, number)).collect();
        for (at, id) in all.iter().enumerate() {
            assert_eq!(records.insert(*id, location(at as u32)), None);
        }
        assert_eq!(records.len(), all.len());
        let most = records.nodes.iter().map(longest).max().unwrap_or(0);
        assert!(most <= TABLE_RECORDS_MAX, "{most} in one table");
        assert_eq!(records.iter().count(), all.len());
        assert!(
            all.iter().enumerate().all(|(at, id)| records.get(id) == Some(&location(at as u32)))
        );

        all.sort_unstable();
        let mut listed = Vec::new();
        while let Some(from) = all.get(listed.len()) {
            let part = records.from(from, 4096);
            assert_eq!(part.len(), 4096.min(all.len() - listed.len()));
            listed.extend(part);
        }
        assert!(listed == all, "all of them, in order");
        assert_eq!(records.from(&all[7], 1), [all[7]]);

        assert_eq!(records.insert(all[0], location(9)).map(|before| before.offset), Some(64));
        for id in &all {
            assert!(records.remove(id).is_some() && records.get_mut(id).is_none());
        }
        assert_eq!((records.len(), records.iter().count()), (0, 0));
        assert_eq!(records.from(&RecordId::new([0; 32]), 10), []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Ranges in any order, that lie in each other or overlap.
    #[test]
    fn what_begins_within_ranges_is_found_as_if_each_were_looked_at(
        offsets in proptest::collection::btree_set(0_u32..100, 0..40),
        ranges in proptest::collection::vec((0_u64..100, 0_u64..20), 0..12),
    ) {
        let mut index = Index::default();
        for offset in &offsets {
            let here = Location { offset: *offset, segment: offset % 2, ..location(0) };
            index.records.insert(alike(0, *offset), here);
        }
        let ranges: Vec<(u64, u64)> =
            ranges.into_iter().map(|(from, long)| (from, from + long)).collect();
        let found = index.within(1, &ranges);
        let mut found: Vec<u32> = found.iter().map(|(_, location)| location.offset).collect();
        found.sort_unstable();
        let hit = |offset: u64| ranges.iter().any(|(from, to)| (*from..*to).contains(&offset));
        let wanted = offsets.into_iter().filter(|at| at % 2 == 1 && hit(u64::from(*at)));
        prop_assert_eq!(found, wanted.collect::<Vec<_>>());
    }

    /// Against a model: few ids that share any number of first bytes, in tables that were split for many others.
    #[test]
    fn ids_come_in_order_from_any_on(
        picks in proptest::collection::vec((0_usize..6, 0_u32..40, any::<bool>()), 0..200),
        from in (0_usize..6, 0_u32..40),
        limit in 0_usize..60,
    ) {
        let mut records = Records::default();
        records.nodes[choice(&alike(6, 0), 0)] = split(1);
        let mut model = BTreeMap::new();
        for (at, (bytes, number, remove)) in picks.into_iter().enumerate() {
            let (id, there) = (alike(bytes, number), location(at as u32));
            let before = match remove {
                true => (records.remove(&id), model.remove(&id)),
                false => (records.insert(id, there), model.insert(id, there)),
            };
            prop_assert_eq!(before.0, before.1);
        }
        let from = alike(from.0, from.1);
        let wanted: Vec<RecordId> = model.range(from..).take(limit).map(|(id, _)| *id).collect();
        prop_assert_eq!(records.from(&from, limit), wanted);
        prop_assert_eq!(records.len(), model.len());
        let found: BTreeMap<RecordId, Location> =
            records.iter().map(|(id, location)| (*id, *location)).collect();
        prop_assert_eq!(found, model);
    }
}

/// Rows that were split down to the fifth byte, on the way of the ids that are alike.
fn split(row: usize) -> Node {
    let mut nodes = vec![Node::default(); row_len(row)];
    if row < 5 {
        nodes[choice(&alike(6, 0), row)] = split(row + 1);
    }
    Node::Row(nodes)
}
