//! What a person sees: prompts, a QR picture and bars on a pseudo terminal, which `script` of util-linux makes.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Home, Network, Outcome, PASSPHRASE, PATIENCE, Running, random_file, run};

fn has_script() -> bool {
    let script = Command::new("script").arg("--version").stdout(Stdio::null()).status();
    script.is_ok_and(|status| status.success())
}

/// What is asked for, and what is typed then.
type Typed<'a> = &'a [(&'a str, &'a str)];

const ASKS: &str = "Passphrase of the keyring: ";
const AGAIN: &str = "The same again: ";
const WORDS: &str = "The 24 words: ";
const NEXT: &str = "Next counter (empty where unknown): ";

/// Runs `hold` on a terminal and types each text when its question is on the screen.
fn on_terminal(home: &Home, line: &str, passphrase: Option<&str>, typed: Typed<'_>) -> Outcome {
    let screen = tempfile::NamedTempFile::new().unwrap();
    let plain = home.hold(["x"]);
    let program = plain.get_program().to_string_lossy().into_owned();
    let mut script = Command::new("script");
    script.args(["-qefc", &format!("stty cols 90; exec {program} {line}")]);
    script.arg(screen.path());
    script.env("HOLD_HOME", &home.dir).env("TERM", "xterm").env_remove("HOLD_PASSPHRASE");
    script.env_remove("NO_COLOR");
    if let Some(passphrase) = passphrase {
        script.env("HOLD_PASSPHRASE", passphrase);
    }
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(&mut script);
    let mut keyboard = running.stdin();
    let started = Instant::now();
    for (question, text) in typed {
        while !std::fs::read_to_string(screen.path()).unwrap_or_default().contains(question) {
            assert!(!running.ended() && started.elapsed() < PATIENCE, "never asked: {question}");
            std::thread::sleep(Duration::from_millis(20));
        }
        // The echo goes off after the question is printed.
        std::thread::sleep(Duration::from_millis(1000));
        keyboard.write_all(text.as_bytes()).unwrap();
        keyboard.flush().unwrap();
    }
    let outcome = running.finish(PATIENCE);
    drop(keyboard);
    outcome
}

fn show(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn prompts_pictures_and_bars_look_right_on_a_terminal() {
    if !has_script() {
        return testkit::skipped("what a terminal shows: `script` is not installed");
    }
    let network = Network::running(3, &[]);
    let via = network.via();
    let new = Home { dir: network.folder.path().join("new") };
    let init = format!("keys init --network {}", show(&network.file));
    let differ = on_terminal(&new, &init, None, &[(ASKS, "abc\n"), (AGAIN, "abd\n")]).expect(2);
    assert!(differ.text().contains("the two passphrases differ"), "{}", differ.text());
    assert!(!differ.text().contains("use a terminal") && !differ.text().contains("abc"));
    let made = on_terminal(&new, &init, None, &[(ASKS, "abc\n"), (AGAIN, "abc\n")]).expect(0);
    assert!(made.text().contains("The same again: "), "{}", made.text());
    let stopped = on_terminal(&new, "keys list", None, &[(ASKS, "\u{3}")]).expect(130);
    assert!(stopped.text().contains("interrupted:"), "{}", stopped.text());
    let wrong = on_terminal(&new, "keys list", None, &[(ASKS, "abd\n")]).expect(12);
    assert!(wrong.text().contains("does not open the keyring"), "{}", wrong.text());
    // Standard input may be the content's, as behind a `|`.
    on_terminal(&new, "keys list </dev/null", None, &[(ASKS, "abc\n")]).expect(0);
    let stopped = on_terminal(&new, "keys list </dev/null", None, &[(ASKS, "\u{3}")]).expect(130);
    assert!(stopped.text().contains("interrupted:"), "{}", stopped.text());
    let refused = on_terminal(&new, "keys export", None, &[("[y/N]", "n\n")]).expect(2);
    assert!(refused.text().contains("[y/N]"), "{}", refused.text());
    let picture = on_terminal(&new, "keys show --qr", Some("abc"), &[]).expect(0).text();
    let lines = picture.lines().filter(|line| line.starts_with("\u{1b}[30;107m")).count();
    assert!(lines > 15, "dark on light, line by line: {picture}");

    let home = network.home("author", 0);
    let file = network.folder.path().join("file.bin");
    random_file(&file, 24 << 20, 1);
    let put = format!("put {} --via {via}", show(&file));
    let put = on_terminal(&home, &put, Some(PASSPHRASE), &[]).expect(0).text();
    assert!(put.contains("copies confirmed") && put.contains("put "), "{put}");
    assert!(!put.contains("0/0"), "a bar is never drawn before it is one: {put}");
    let last = put.lines().last().unwrap();
    assert!(last.ends_with(|last: char| last.is_ascii_hexdigit()), "the address stays: {last}");
}

/// What is pasted comes as two lines, the second before it is asked for.
#[test]
fn what_export_printed_is_pasted_at_the_prompt_with_its_counter() {
    if !has_script() {
        return testkit::skipped("what is pasted at a terminal: `script` is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let home = Home { dir: folder.path().join("home") };
    run(&mut home.hold(["keys", "init"])).expect(0);
    let export = run(&mut home.hold(["keys", "export", "--yes", "--json"])).expect(0).json();
    let words = export["words"].as_str().unwrap();
    let (alone, pasted) = (format!("{words}\n"), format!("{words}\nnext counter: 5000\n"));
    let typed = [
        (vec![(WORDS, pasted.as_str())], 5_000),
        (vec![(WORDS, alone.as_str()), (NEXT, "next counter: 6000\n")], 6_000),
        (vec![(WORDS, alone.as_str()), (NEXT, "7\n")], 7),
        (vec![(WORDS, alone.as_str()), (NEXT, "\n")], 1_024),
    ];
    for (number, (typed, next)) in typed.into_iter().enumerate() {
        let new = Home { dir: folder.path().join(format!("new{number}")) };
        let typed = [&typed[..], &[(ASKS, "abc\n"), (AGAIN, "abc\n")]].concat();
        let made = on_terminal(&new, "keys import", None, &typed).expect(0).text();
        assert!(!made.contains(words), "they are not shown: {made}");
        let mut export = new.hold(["keys", "export", "--yes", "--json"]);
        let export = run(export.env("HOLD_PASSPHRASE", "abc")).expect(0).json();
        assert_eq!((&export["words"], &export["next"]), (&words.into(), &next.into()), "{made}");
    }
    let new = Home { dir: folder.path().join("none") };
    let typed = [(WORDS, alone.as_str()), (NEXT, "many\n")];
    let refused = on_terminal(&new, "keys import", None, &typed).expect(2).text();
    assert!(refused.contains("no number") && !new.dir.exists(), "{refused}");
}
