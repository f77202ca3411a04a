use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// Lines of one letter each.
fn text(letters: &str) -> String {
    letters.chars().flat_map(|letter| [letter, '\n']).collect()
}

fn three(v0: &str, v1: &str, v2: &str) -> Result<String, Vec<(usize, usize)>> {
    let [v0, v1, v2] = [v0, v1, v2].map(text);
    match lines(v0.as_bytes(), v1.as_bytes(), v2.as_bytes()) {
        Merged::Value { value, .. } => {
            Ok(String::from_utf8_lossy(&value).split('\n').collect::<String>())
        }
        Merged::Conflict(conflict) => Err(conflict
            .clashes
            .iter()
            .map(|clash| match clash {
                Clash::Lines { from, until } => (*from, *until),
                Clash::Field(_) => panic!("text has no fields"),
            })
            .collect()),
    }
}

#[test]
fn changes_apart_are_both_applied() {
    assert_eq!(three("abcde", "Abcde", "abcdE").as_deref(), Ok("AbcdE"));
    assert_eq!(three("abcde", "bcde", "abcdef").as_deref(), Ok("bcdef"));
    assert_eq!(three("abcde", "axbcde", "abcd").as_deref(), Ok("axbcd"));
    assert_eq!(three("abcdefgh", "aXcdefgh", "abcdefYYgh").as_deref(), Ok("aXcdefYYgh"));
    assert_eq!(three("abcde", "abXde", "abXde").as_deref(), Ok("abXde"), "the same by both");
    assert_eq!(three("abcde", "abXde", "abXdf").as_deref(), Ok("abXdf"), "and more by one");
}

#[test]
fn changes_that_overlap_or_touch_clash() {
    assert_eq!(three("abcde", "aXcde", "aYcde"), Err(vec![(1, 2)]));
    assert_eq!(three("abcde", "aXcde", "abYde"), Err(vec![(1, 3)]), "no line between");
    assert_eq!(three("abcde", "aXYde", "abcZe"), Err(vec![(1, 4)]));
    assert_eq!(three("ab", "aXb", "aYb"), Err(vec![(1, 1)]), "two insertions at one place");
    assert_eq!(three("", "X", "Y"), Err(vec![(0, 0)]));
    assert_eq!(three("abcde", "Xbcde", "bcde"), Err(vec![(0, 1)]), "changed and deleted");
    let clashes = three("abcdefg", "Xbcdefg", "YbcdefZ");
    assert_eq!(clashes, Err(vec![(0, 1)]));
    assert_eq!(three("abcdefg", "XbcdefX", "YbcdefZ"), Err(vec![(0, 1), (6, 7)]));
}

#[test]
fn a_last_line_may_lack_its_end() {
    let merge = |v0: &str, v1: &str, v2: &str| lines(v0.as_bytes(), v1.as_bytes(), v2.as_bytes());
    assert_eq!(merge("a\nb\nc", "A\nb\nc", "a\nb\nC"), Merged::bytes(&b"A\nb\nC"[..]));
    assert_eq!(merge("a\nb\nc", "x\na\nb\nc", "a\nb\nc\n"), Merged::bytes(&b"x\na\nb\nc\n"[..]));
}

fn applied(base: &[u32], side: &[u32], changes: &[Change]) -> Vec<u32> {
    let (mut out, mut at) = (Vec::new(), 0);
    for change in changes {
        out.extend(&base[at..change.base.start]);
        out.extend(&side[change.side.clone()]);
        at = change.base.end;
    }
    out.extend(&base[at..]);
    out
}

/// The length of a longest common subsequence, by the table.
fn longest_common(a: &[u32], b: &[u32]) -> usize {
    let mut row = vec![0; b.len() + 1];
    for x in a {
        let mut before = 0;
        for (index, y) in b.iter().enumerate() {
            let above = row[index + 1];
            row[index + 1] = if x == y { before + 1 } else { row[index].max(above) };
            before = above;
        }
    }
    row[b.len()]
}

proptest! {
    #[test]
    fn the_changes_make_the_side_and_are_the_fewest(
        base in proptest::collection::vec(0..4_u32, 0..25),
        side in proptest::collection::vec(0..4_u32, 0..25),
    ) {
        let changes = changes(&base, &side);
        prop_assert_eq!(applied(&base, &side, &changes), side.clone());
        let lines: usize = changes.iter().map(|one| one.base.len() + one.side.len()).sum();
        prop_assert_eq!(lines, base.len() + side.len() - 2 * longest_common(&base, &side));
        for two in changes.windows(2) {
            prop_assert!(two[0].base.end < two[1].base.start, "they do not touch");
        }
    }

    /// Lines that are all different, and two sides that change lines with some unchanged between: the merge is known.
    #[test]
    fn edits_apart_merge_to_both(
        edits in proptest::collection::vec((0..3_u8, any::<bool>()), 1..12),
    ) {
        let (mut base, mut sides, mut both) = (vec![], [vec![], vec![]], vec![]);
        for (number, (what, second)) in edits.iter().enumerate() {
            let [kept, old, new] = ["kept", "old", "new"].map(|name| format!("{name} {number}\n"));
            let (was, made) = match what {
                0 => (Some(&old), Some(&new)),
                1 => (None, Some(&new)),
                _ => (Some(&old), None),
            };
            base.extend(was.into_iter().chain([&kept]).cloned());
            both.extend(made.into_iter().chain([&kept]).cloned());
            for (side, lines) in sides.iter_mut().enumerate() {
                let has = if side == usize::from(*second) { made } else { was };
                lines.extend(has.into_iter().chain([&kept]).cloned());
            }
        }
        let [v1, v2] = sides.map(|lines| lines.concat());
        let merged = lines(base.concat().as_bytes(), v1.as_bytes(), v2.as_bytes());
        prop_assert_eq!(merged, Merged::bytes(Bytes::from(both.concat())));
    }
}

/// Past the limits all that differs is one change: less merges, and nothing takes long.
#[test]
fn texts_made_to_be_slow_are_not() {
    let numbered = |from: usize, until: usize, step: usize| -> Vec<u32> {
        (from..until).step_by(step).map(|number| number as u32).collect()
    };
    let (many, others) = (numbered(0, 4_000, 1), numbered(10_000, 14_000, 1));
    assert_eq!(changes(&many, &others), [Change { base: 0..4_000, side: 0..4_000 }]);
    let mut side = many.clone();
    side.iter_mut().step_by(8).for_each(|line| *line += 20_000);
    assert_eq!(changes(&many, &side).len(), 500, "a thousand lines deleted and inserted");
    side.iter_mut().step_by(4).for_each(|line| *line += 20_000);
    assert_eq!(changes(&many, &side), [Change { base: 0..3_997, side: 0..3_997 }]);
    // The same lines many times: the steps are counted, not the edits alone.
    let ones = vec![1; 6_000];
    let side: Vec<u32> = (0..60).flat_map(|_| [&[1; 100][..], &[0]].concat()).collect();
    assert_eq!(changes(&ones, &side).len(), 60);
    assert!(same_runs(&ones, &side, 6_000).is_none());
}
