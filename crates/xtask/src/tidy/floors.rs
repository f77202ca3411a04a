//! Which crate may name which: an arrow goes down only.
//!
//! A crate may name crates of lower floors and those listed before it on its own floor. Development crates may name all, and
//! are named only in dev-dependencies.

use std::path::Path;

use super::{Finding, TidyError, list, read};

/// The floors, L0 first, each in its order.
const FLOORS: [&[&str]; 6] = [
    &["crypto", "document", "erasure", "placement", "version"],
    &["env"],
    &["store", "objects", "rpc", "overlay", "walk", "committee"],
    &["librarian", "author"],
    &["door-redis", "bench"],
    &["hold"],
];

/// Crates for development: any floor, named only in dev-dependencies.
const DEVELOPMENT: &[&str] = &["testkit", "sim", "rivals", "xtask"];

/// Crates of the list that keep the doors apart: none names another of them.
const DOORS_FLOOR: usize = 4;

fn place(name: &str) -> Option<(usize, usize)> {
    FLOORS.iter().enumerate().find_map(|(floor, names)| {
        names.iter().position(|listed| *listed == name).map(|at| (floor, at))
    })
}

/// Whether `from` may name `to` in its dependencies.
fn allowed(from: &str, to: &str) -> bool {
    if DEVELOPMENT.contains(&from) {
        return true;
    }
    match (place(from), place(to)) {
        (Some(from), Some(to)) => to < from && !(from.0 == DOORS_FLOOR && to.0 == DOORS_FLOOR),
        _ => false,
    }
}

/// Checks every manifest below `crates/`.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>, TidyError> {
    let mut found = Vec::new();
    for folder in list(&root.join("crates"))? {
        let file = folder.join("Cargo.toml");
        let manifest: toml::Table = toml::from_str(&read(&file)?)
            .map_err(|source| TidyError::Manifest { file: file.clone(), source: source.into() })?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut find = |what| {
            let file = file.strip_prefix(root).unwrap_or(&file).to_path_buf();
            found.push(Finding { file, line: 0, what });
        };
        if place(&name).is_none() && !DEVELOPMENT.contains(&name.as_str()) {
            find(format!("crate {name} is on no floor; add it to the list in tidy/floors.rs"));
        }
        for table in ["dependencies", "build-dependencies"] {
            for to in names(&manifest, table) {
                let ours = place(&to).is_some() || DEVELOPMENT.contains(&to.as_str());
                if ours && !allowed(&name, &to) {
                    find(format!("{name} may not name {to}: arrows go down only"));
                }
            }
        }
    }
    Ok(found)
}

fn names(manifest: &toml::Table, table: &str) -> Vec<String> {
    let table = manifest.get(table).and_then(toml::Value::as_table);
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_go_down_only() {
        assert!(allowed("document", "crypto"));
        assert!(!allowed("crypto", "document"));
        assert!(allowed("author", "librarian"));
        assert!(!allowed("librarian", "author"));
        assert!(!allowed("hold", "testkit"));
        assert!(allowed("testkit", "store"));
    }

    #[test]
    fn an_upward_arrow_is_found() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("crates/crypto");
        std::fs::create_dir_all(&folder).expect("a folder");
        let manifest = "[dependencies]\ndocument.workspace = true\n";
        std::fs::write(folder.join("Cargo.toml"), manifest).expect("a file");
        let found = check(root.path()).expect("readable");
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
