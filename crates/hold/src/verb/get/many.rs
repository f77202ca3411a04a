//! Many contents out of the network at once, into a folder: what `hold put DIR` put, given back.
//!
//! The list is what `hold put DIR --json` printed, an object a line. A list may come from somebody
//! else, so a name in it stays below the folder: no absolute name, no `..`, and no link that is below the
//! folder is followed. Some files are fetched at once, since a small one waits for its calls one after the
//! other; they are told in the order of the list. One that fails is warned of and keeps no other from being
//! fetched. Those that were told are whole and durable.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use author::Author;
use crypto::RecordId;
use serde::Deserialize;

use super::GetResult;
use crate::cli::Session;
use crate::draft::{Draft, Top};
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::PathText;
use crate::progress::Bar;
use crate::several::{self, Doing};
use crate::{address, connect};

/// The most that one list names, as many as one put of a folder takes.
const ITEMS_MAX: usize = 1_000_000;
/// The longest line of a list, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
const FLAG: &str = "--list";

/// What is read of a line.
#[derive(Deserialize)]
struct Line {
    address: String,
    name: Option<String>,
}

/// One content of a list, and its name below the folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    address: RecordId,
    name: PathBuf,
}

impl Item {
    fn parse(line: &str) -> Result<Self, HoldError> {
        let wrong = |why: String| HoldError::argument(FLAG, why);
        let Line { address, name } = serde_json::from_str(line).map_err(|error| {
            wrong(format!("a line is not what `hold put DIR --json` prints: {error}"))
        })?;
        let address = address::parse(&address)?;
        let name = name.map_or_else(|| PathBuf::from(address.to_string()), PathBuf::from);
        let inside = |part: Component| matches!(part, Component::Normal(_));
        if name.as_os_str().is_empty() || !name.components().all(inside) {
            return Err(wrong(format!("{name:?} does not stay below the folder")));
        }
        Ok(Self { address, name: name.components().collect() })
    }
}

/// Reads a list; `-` is standard input.
pub(super) fn list(path: &Path) -> Result<Vec<Item>, HoldError> {
    let failed = || HoldError::io("read", path);
    let from: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(failed())?)
    };
    let (mut from, mut items, mut line) = (BufReader::new(from), Vec::new(), String::new());
    // Two of one name would go over each other.
    let mut names = HashSet::new();
    loop {
        line.clear();
        let read = from.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).map_err(failed())?;
        if read == 0 {
            return Ok(items);
        }
        if !line.trim().is_empty() {
            let item = Item::parse(&line)?;
            if !names.insert(item.name.clone()) {
                return Err(HoldError::argument(FLAG, format!("{:?} is in it twice", item.name)));
            }
            items.push(item);
        }
        if items.len() > ITEMS_MAX {
            return Err(HoldError::argument(FLAG, format!("over {ITEMS_MAX} lines")));
        }
    }
}

/// Fetches all of them into a folder, which is made where it is not there.
pub(super) async fn run(
    session: &Session,
    items: Vec<Item>,
    folder: &Path,
    sync: bool,
) -> Result<Exit, HoldError> {
    let top = Top::open(folder)?;
    let author = connect::author(session).await?;
    let (author, out, top) = (&author, &session.out, &top);
    let named = items.into_iter().map(|item| (item.name.display().to_string(), item));
    let one = |_, item, bar| one(author, item, top, folder, sync, bar);
    let told = |got: GetResult, _| out.result(&got).map(|()| Exit::Done);
    let doing = Doing { verb: "get", done: "here" };
    let exits = several::files(out, doing, named.collect(), one, told).await?;
    Ok(Exit::of_all(&exits))
}

async fn one(
    author: &Author,
    item: Item,
    top: &Top,
    folder: &Path,
    sync: bool,
    bar: Arc<Bar>,
) -> Result<GetResult, HoldError> {
    let (started, path) = (Instant::now(), folder.join(&item.name));
    let draft = Draft::below(top, &item.name)?.synced(sync);
    let mut sink = draft.sink(author.env())?;
    let report = author.get(item.address, &mut sink, None, bar).await?;
    let (bytes, degraded) = (report.bytes, report.degraded);
    drop(sink);
    // Syncing waits for the disk.
    let kept = tokio::task::spawn_blocking(move || draft.keep()).await;
    kept.map_err(|_| HoldError::Interrupted)??;
    let seconds = started.elapsed().as_secs_f64();
    Ok(GetResult { bytes, seconds, degraded, file: Some(PathText::from(path)) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn line(name: &str) -> String {
        let address = address::text(&RecordId::new([0xab; 32]));
        serde_json::json!({ "address": address, "name": name, "bytes": 7 }).to_string()
    }

    #[test]
    fn a_list_is_what_put_printed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let bare = format!("{{\"address\":\"{}\"}}", "ab".repeat(32));
        std::fs::write(&path, format!("{}\n\n{bare}\n", line("a/b c"))).unwrap();
        let items = list(&path).unwrap();
        assert_eq!(items[0].name, Path::new("a/b c"));
        assert_eq!(items[1].name, PathBuf::from("ab".repeat(32)));
        assert_eq!((items[0].address, items.len()), (items[1].address, 2));
        std::fs::write(&path, "hold:abc  name\n").unwrap();
        assert!(list(&path).is_err());
        std::fs::write(&path, format!("{}\n{}\n", line("a//b"), line("a/./b"))).unwrap();
        assert!(list(&path).is_err(), "one name twice");
    }

    #[test]
    fn a_name_that_leaves_the_folder_is_refused() {
        for bad in ["..", "../a", "a/../../b", "/etc/passwd", "", "a/.."] {
            assert!(Item::parse(&line(bad)).is_err(), "{bad:?}");
        }
        for good in ["a", ".hidden", "a/b/c", "-rf", "a..b"] {
            assert!(Item::parse(&line(good)).is_ok(), "{good:?}");
        }
    }
}
