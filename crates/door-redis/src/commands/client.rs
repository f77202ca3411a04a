//! CLIENT: what connections tell of themselves and of each other.

use std::fmt::Write;

use bytes::Bytes;

use crate::door::Door;
use crate::fail::{Done, Fail, SYNTAX};
use crate::session::Call;

/// The longest name of a connection or a library, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// CLIENT.
pub(crate) fn client(door: &mut Door, call: &mut Call<'_>) -> Done {
    let word = call.arg(1).to_ascii_lowercase();
    let id = call.session.id;
    match (word.as_slice(), call.len()) {
        (b"id", 2) => call.out.integer(i64::try_from(id).unwrap_or(i64::MAX)),
        (b"getname", 2) => match door.clients.get(&id).map(|client| &client.name) {
            Some(name) if !name.is_empty() => call.out.bulk(name),
            _ => call.out.null(),
        },
        (b"setname", 3) => {
            check_name(call.arg(2))?;
            if let Some(client) = door.clients.get_mut(&id) {
                client.name = call.args.bytes(2);
            }
            call.out.ok();
        }
        (b"setinfo", 4) => set_info(door, call)?,
        (b"info", 2) => {
            let text = line(door, id);
            call.out.verbatim(&text);
        }
        (b"list", 2..) => {
            let all: Vec<u64> = door.clients.keys().copied().collect();
            let text: String = all.into_iter().map(|id| line(door, id)).collect();
            call.out.verbatim(&text);
        }
        (b"no-evict" | b"no-touch", 3) => {
            if !call.is(2, "on") && !call.is(2, "off") {
                return Err(SYNTAX);
            }
            call.out.ok();
        }
        (b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"no-evict" | b"no-touch", _) => {
            let word = String::from_utf8_lossy(&word).into_owned();
            return Err(crate::run::arity(&format!("client|{word}")));
        }
        _ => return Err(unknown(call, "CLIENT")),
    }
    Ok(())
}

/// The error for a word that a command does not know.
pub(crate) fn unknown(call: &Call<'_>, command: &str) -> Fail {
    let word = String::from_utf8_lossy(call.arg(1));
    let word: String = word.chars().take(128).collect();
    Fail::Long(format!("ERR unknown subcommand '{word}'. Try {command} HELP."))
}

/// Refuses names with spaces and line ends: lists of clients are lines of words.
pub(crate) fn check_name(name: &[u8]) -> Done {
    if name.len() > NAME_BYTES_MAX || name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        return Err(Fail::Say(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    Ok(())
}

fn set_info(door: &mut Door, call: &mut Call<'_>) -> Done {
    check_name(call.arg(3))?;
    let text: Bytes = call.args.bytes(3);
    let Some(client) = door.clients.get_mut(&call.session.id) else { return Ok(()) };
    if call.is(2, "lib-name") {
        client.library = text;
    } else if call.is(2, "lib-ver") {
        client.library_version = text;
    } else {
        let word = String::from_utf8_lossy(call.arg(2)).into_owned();
        return Err(Fail::Long(format!("ERR Unrecognized option '{word}'")));
    }
    call.out.ok();
    Ok(())
}

fn line(door: &Door, id: u64) -> String {
    let mut line = String::new();
    let Some(client) = door.clients.get(&id) else { return line };
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let _ = writeln!(
        line,
        "id={id} addr={} name={} age={} db=0 resp={} lib-name={} lib-ver={}",
        client.address,
        text(&client.name),
        door.now.saturating_sub(client.since) / 1000,
        client.protocol,
        text(&client.library),
        text(&client.library_version),
    );
    line
}
