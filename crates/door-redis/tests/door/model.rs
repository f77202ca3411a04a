//! Random commands against a small model of what Redis keeps, with restarts and failed commits.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::client::{Opened, options};
use crate::memory::{Calendar, Memory};

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(String),
    /// In order of insertion.
    Hash(Vec<(String, String)>),
    Sorted(BTreeMap<String, i64>),
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    ends: Option<u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u8, Option<u64>),
    Append(u8, u8),
    Incr(u8),
    Get(u8),
    Del(u8),
    HSet(u8, u8, u8),
    HDel(u8, u8),
    HGetAll(u8),
    ZAdd(u8, u8, i64),
    ZRem(u8, u8),
    ZRange(u8),
    Rename(u8, u8),
    Expire(u8, u64),
    Pass(u64),
    Restart,
    Fail,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0_u8..5;
    prop_oneof![
        4 => (key.clone(), any::<u8>(), prop::option::weighted(0.3, 1_u64..2000))
            .prop_map(|(k, v, end)| Step::Set(k, v, end)),
        2 => (key.clone(), any::<u8>()).prop_map(|(k, v)| Step::Append(k, v)),
        2 => key.clone().prop_map(Step::Incr),
        3 => key.clone().prop_map(Step::Get),
        3 => key.clone().prop_map(Step::Del),
        4 => (key.clone(), 0_u8..6, any::<u8>()).prop_map(|(k, f, v)| Step::HSet(k, f, v)),
        2 => (key.clone(), 0_u8..6).prop_map(|(k, f)| Step::HDel(k, f)),
        2 => key.clone().prop_map(Step::HGetAll),
        4 => (key.clone(), 0_u8..6, -3_i64..3).prop_map(|(k, m, s)| Step::ZAdd(k, m, s)),
        2 => (key.clone(), 0_u8..6).prop_map(|(k, m)| Step::ZRem(k, m)),
        2 => key.clone().prop_map(Step::ZRange),
        1 => (key.clone(), key.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => (key, 1_u64..2000).prop_map(|(k, ms)| Step::Expire(k, ms)),
        1 => (1_u64..1500).prop_map(Step::Pass),
        1 => Just(Step::Restart),
        1 => Just(Step::Fail),
    ]
}

const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[derive(Default)]
struct Model {
    keys: BTreeMap<u8, Entry>,
    now: u64,
}

impl Model {
    fn pass(&mut self, ms: u64) {
        self.now += ms;
        let now = self.now;
        self.keys.retain(|_, entry| entry.ends.is_none_or(|end| end > now));
    }

    fn put(&mut self, key: u8, value: Value) {
        let ends = self.keys.get(&key).and_then(|entry| entry.ends);
        self.keys.insert(key, Entry { value, ends });
    }

    fn text(&self, key: u8) -> Result<Option<String>, String> {
        match self.keys.get(&key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(_) => Err(WRONG.into()),
        }
    }

    fn hash(&self, key: u8) -> Result<Vec<(String, String)>, String> {
        match self.keys.get(&key).map(|entry| &entry.value) {
            None => Ok(Vec::new()),
            Some(Value::Hash(fields)) => Ok(fields.clone()),
            Some(_) => Err(WRONG.into()),
        }
    }

    fn sorted(&self, key: u8) -> Result<BTreeMap<String, i64>, String> {
        match self.keys.get(&key).map(|entry| &entry.value) {
            None => Ok(BTreeMap::new()),
            Some(Value::Sorted(members)) => Ok(members.clone()),
            Some(_) => Err(WRONG.into()),
        }
    }

    /// The command's line and its answer.
    fn apply(&mut self, step: &Step) -> (String, String) {
        let line = match step {
            Step::Set(k, v, None) => format!("SET {k} {v}"),
            Step::Set(k, v, Some(ms)) => format!("SET {k} {v} PX {ms}"),
            Step::Append(k, v) => format!("APPEND {k} {v}"),
            Step::Incr(k) => format!("INCR {k}"),
            Step::Get(k) => format!("GET {k}"),
            Step::Del(k) => format!("DEL {k}"),
            Step::HSet(k, f, v) => format!("HSET {k} f{f} {v}"),
            Step::HDel(k, f) => format!("HDEL {k} f{f}"),
            Step::HGetAll(k) => format!("HGETALL {k}"),
            Step::ZAdd(k, m, s) => format!("ZADD {k} {s} m{m}"),
            Step::ZRem(k, m) => format!("ZREM {k} m{m}"),
            Step::ZRange(k) => format!("ZRANGE {k} 0 -1 WITHSCORES"),
            Step::Rename(a, b) => format!("RENAME {a} {b}"),
            Step::Expire(k, ms) => format!("PEXPIRE {k} {ms}"),
            Step::Pass(_) | Step::Restart | Step::Fail => "PING".into(),
        };
        let answer = self.strings(step).or_else(|| self.maps(step)).unwrap_or(Ok("PONG".into()));
        (line, answer.unwrap_or_else(|wrong| wrong))
    }

    fn strings(&mut self, step: &Step) -> Option<Result<String, String>> {
        Some(Ok(match step {
            Step::Set(k, v, ms) => {
                let ends = ms.map(|ms| self.now + ms);
                self.keys.insert(*k, Entry { value: Value::Text(v.to_string()), ends });
                "OK".into()
            }
            Step::Append(k, v) => match self.text(*k) {
                Ok(old) => {
                    let new = old.unwrap_or_default() + &v.to_string();
                    let length = new.len();
                    self.put(*k, Value::Text(new));
                    length.to_string()
                }
                Err(wrong) => return Some(Err(wrong)),
            },
            Step::Incr(k) => match self.text(*k) {
                Ok(old) => {
                    let old = old.unwrap_or("0".into());
                    match old.parse::<i64>().ok().filter(|n| n.to_string() == old) {
                        Some(n) if n < i64::MAX => {
                            self.put(*k, Value::Text((n + 1).to_string()));
                            (n + 1).to_string()
                        }
                        _ => "ERR value is not an integer or out of range".into(),
                    }
                }
                Err(wrong) => return Some(Err(wrong)),
            },
            Step::Get(k) => match self.text(*k) {
                Ok(text) => text.unwrap_or("nil".into()),
                Err(wrong) => return Some(Err(wrong)),
            },
            Step::Del(k) => u8::from(self.keys.remove(k).is_some()).to_string(),
            Step::Expire(k, ms) => {
                let end = self.now + ms;
                match self.keys.get_mut(k) {
                    Some(entry) => {
                        entry.ends = Some(end);
                        "1".into()
                    }
                    None => "0".into(),
                }
            }
            Step::Rename(a, b) => match self.keys.get(a).cloned() {
                Some(entry) => {
                    self.keys.remove(a);
                    self.keys.insert(*b, entry);
                    "OK".into()
                }
                None => "ERR no such key".into(),
            },
            _ => return None,
        }))
    }

    fn maps(&mut self, step: &Step) -> Option<Result<String, String>> {
        let answer = match step {
            Step::HSet(k, f, v) => self.hash(*k).map(|mut fields| {
                let name = format!("f{f}");
                let old = fields.iter_mut().find(|(field, _)| *field == name);
                let new = old.is_none();
                match old {
                    Some(pair) => pair.1 = v.to_string(),
                    None => fields.push((name, v.to_string())),
                }
                self.put(*k, Value::Hash(fields));
                u8::from(new).to_string()
            }),
            Step::HDel(k, f) => self.hash(*k).map(|mut fields| {
                let before = fields.len();
                fields.retain(|(field, _)| *field != format!("f{f}"));
                let removed = before - fields.len();
                match (removed, fields.is_empty()) {
                    (0, _) => {}
                    (_, true) => drop(self.keys.remove(k)),
                    (_, false) => self.put(*k, Value::Hash(fields)),
                }
                removed.to_string()
            }),
            Step::HGetAll(k) => self.hash(*k).map(|fields| {
                let all: Vec<String> = fields.into_iter().flat_map(|(f, v)| [f, v]).collect();
                format!("[{}]", all.join(" "))
            }),
            Step::ZAdd(k, m, s) => self.sorted(*k).map(|mut members| {
                let new = members.insert(format!("m{m}"), *s).is_none();
                self.put(*k, Value::Sorted(members));
                u8::from(new).to_string()
            }),
            Step::ZRem(k, m) => self.sorted(*k).map(|mut members| {
                let removed = members.remove(&format!("m{m}")).is_some();
                match (removed, members.is_empty()) {
                    (false, _) => {}
                    (true, true) => drop(self.keys.remove(k)),
                    (true, false) => self.put(*k, Value::Sorted(members)),
                }
                u8::from(removed).to_string()
            }),
            Step::ZRange(k) => self.sorted(*k).map(|members| {
                let mut all: Vec<(i64, String)> =
                    members.into_iter().map(|(m, s)| (s, m)).collect();
                all.sort();
                let all: Vec<String> =
                    all.into_iter().flat_map(|(s, m)| [m, s.to_string()]).collect();
                format!("[{}]", all.join(" "))
            }),
            _ => return None,
        };
        Some(answer)
    }
}

/// Whether the step writes in the state the model is in.
fn writes(before: &BTreeMap<u8, Entry>, after: &BTreeMap<u8, Entry>) -> bool {
    format!("{before:?}") != format!("{after:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_commands_are_answered_as_the_model_does(
        steps in prop::collection::vec(step(), 1..120),
        part_bytes in prop_oneof![Just(0_usize), 1_usize..40],
    ) {
        let memory = Memory::parted(part_bytes);
        let mut opened = Opened::over(options(), memory, Calendar::new());
        let mut caller = opened.caller();
        let mut model = Model { now: 1_800_000_000_000, ..Model::default() };
        let mut failing = false;
        for step in &steps {
            match step {
                Step::Pass(ms) => {
                    model.pass(*ms);
                    opened.calendar.pass(*ms);
                }
                Step::Restart => {
                    // Commits of keys that have ended may have failed; they are gone all the same.
                    opened.memory.log().failing = 0;
                    failing = false;
                    opened = opened.again();
                    caller = opened.caller();
                }
                Step::Fail => failing = true,
                _ => {}
            }
            let before = model.keys.clone();
            let (line, expected) = model.apply(step);
            let writing = writes(&before, &model.keys);
            if failing && writing {
                opened.memory.log().failing = 1;
                let answer = caller.say(&line);
                if answer.starts_with("MISCONF") {
                    model.keys = before;
                } else {
                    prop_assert_eq!(answer, expected, "{}", line);
                }
                opened.memory.log().failing = 0;
                failing = false;
            } else {
                prop_assert_eq!(caller.say(&line), expected, "{}", line);
            }
        }
        let known: Vec<String> = model.keys.keys().map(u8::to_string).collect();
        let answer = caller.say("KEYS *");
        let mut found: Vec<&str> = answer.trim_matches(['[', ']']).split_whitespace().collect();
        found.sort_unstable();
        prop_assert_eq!(found, known);
    }
}
