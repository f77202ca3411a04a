//! The pages of the reference are those that this program writes; completions and manual pages are whole.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::{assert_only, hold, run};

const PAGES: [&str; 4] = ["commands.md", "configuration.md", "environment.md", "exit-codes.md"];

fn reference() -> PathBuf {
    Path::new(testkit::manifest!()).join("../../docs/reference")
}

#[test]
fn the_pages_of_the_reference_are_those_of_this_program() {
    let folder = tempfile::tempdir().unwrap();
    run(hold(["reference", "--dir"]).arg(folder.path())).expect(0);
    assert_only(folder.path(), &PAGES);
    for page in PAGES {
        let made = fs::read_to_string(folder.path().join(page)).unwrap();
        let kept = fs::read_to_string(reference().join(page)).unwrap_or_default();
        assert!(made == kept, "docs/reference/{page} is stale: cargo xtask reference");
    }
}

/// Every verb, as the reference lists them: those without verbs below them.
fn verbs() -> Vec<String> {
    let page = fs::read_to_string(reference().join("commands.md")).unwrap();
    let parts = page.split("\n## hold ").skip(1);
    let leaves = parts.filter(|part| part.contains("```text"));
    leaves.map(|part| part.lines().next().unwrap().to_owned()).collect()
}

#[test]
fn every_verb_has_its_json_listed() {
    let json = fs::read_to_string(reference().join("json.md")).unwrap();
    let verbs = verbs();
    assert!(verbs.len() > 25, "{verbs:?}");
    for verb in verbs {
        assert!(json.contains(&format!("`hold {verb}`")), "json.md has nothing of hold {verb}");
    }
}

#[test]
fn completions_are_scripts_that_know_every_verb() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        // Also where no home could be found: what a shell reads at its start must not fail.
        let script = run(hold(["completions", shell]).env_remove("HOME")).expect(0).text();
        for word in ["doctor", "sign-peer", "passphrase-file", "signed-listen"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
        for hidden in ["subcmd__reference", "the pages of the reference"] {
            assert!(!script.contains(hidden), "{shell} offers a hidden verb");
        }
        syntax(shell, &script);
    }
    run(&mut hold(["completions", "tcsh"])).expect(2);
    let json = run(&mut hold(["completions", "fish", "--json"])).expect(0).json();
    assert_eq!(json["shell"], "fish");
    bash_completes();
}

/// Where the shell is installed it must take the script.
fn syntax(shell: &str, script: &str) {
    if !["bash", "zsh", "fish"].contains(&shell) {
        return;
    }
    let check = Command::new(shell).arg("-n").stdin(Stdio::piped()).spawn();
    let Ok(mut check) = check else {
        return testkit::skipped(&format!("{shell}'s script: {shell} is not installed"));
    };
    check.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(check.wait().unwrap().success(), "{shell} does not take its script");
}

/// What bash offers after `hold peer s`.
fn bash_completes() {
    let script = "eval \"$(\"$0\" completions bash)\"; COMP_WORDS=(hold peer s); COMP_CWORD=2; \
        _hold hold s peer; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).arg(env!("CARGO_BIN_EXE_hold"));
    let Ok(done) = bash.output() else {
        return testkit::skipped("what bash completes: bash is not installed");
    };
    let offered = String::from_utf8_lossy(&done.stdout);
    assert!(offered.contains("set") && offered.contains("status"), "{done:?}");
}

#[test]
fn every_verb_has_a_manual_page_that_renders() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("man1");
    let listed = run(hold(["man", "--json", "--dir"]).arg(&dir)).expect(0).json();
    let files: Vec<PathBuf> = listed["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file.as_str().unwrap().into())
        .collect();
    for verb in verbs() {
        let page = dir.join(format!("hold-{}.1", verb.replace(' ', "-")));
        assert!(files.contains(&page), "no page of hold {verb}");
    }
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains(".TH") && text.contains(".SH NAME"), "{}", file.display());
    }
    if !files.iter().all(|file| renders(file)) {
        testkit::skipped("manual pages, rendered: neither mandoc nor groff is installed");
    }
    let printed = run(&mut hold(["man"])).expect(0).text();
    assert_eq!(printed.trim_end(), fs::read_to_string(dir.join("hold.1")).unwrap().trim_end());
    // A second run writes the same bytes.
    let before = fs::read(&files[0]).unwrap();
    run(hold(["man", "--dir"]).arg(&dir)).expect(0);
    assert_eq!(fs::read(&files[0]).unwrap(), before);
    run(hold(["man", "--dir"]).arg(&files[0])).expect_error(14);
}

/// Formats a page with whatever is installed; a warning is a fault. Whether there is anything that does.
fn renders(page: &Path) -> bool {
    let programs: [(&str, &[&str]); 2] =
        [("mandoc", &["-T", "lint", "-W", "error"]), ("groff", &["-man", "-Tutf8", "-ww"])];
    for (program, args) in programs {
        if let Ok(done) = Command::new(program).args(args).arg(page).output() {
            assert!(done.status.success(), "{}: {done:?}", page.display());
            assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
            return true;
        }
    }
    false
}
