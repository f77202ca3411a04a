//! How a connection begins and ends.

use bytes::Bytes;

use crate::commands::client;
use crate::door::Door;
use crate::fail::{Done, Fail, SYNTAX};
use crate::number;
use crate::session::{Call, WRONG_PASSWORDS_MAX};

/// The version of Redis whose behaviour this is. Clients decide by it what to try.
pub(crate) const REDIS_VERSION: &str = "7.2.0";
const WRONG_PASSWORD: Fail =
    Fail::Say("WRONGPASS invalid username-password pair or user is disabled.");

/// PING.
pub(crate) fn ping(_: &mut Door, call: &mut Call<'_>) -> Done {
    if call.len() > 2 {
        return Err(crate::run::arity("ping"));
    }
    let watching = call.session.watching > 0 && call.out.protocol() == 2;
    match (watching, call.len()) {
        (false, 1) => call.out.simple("PONG"),
        (false, _) => call.out.bulk(call.arg(1)),
        (true, _) => {
            call.out.array(2);
            call.out.bulk(b"pong");
            call.out.bulk(call.arg(1));
        }
    }
    Ok(())
}

/// ECHO.
pub(crate) fn echo(_: &mut Door, call: &mut Call<'_>) -> Done {
    call.out.bulk(call.arg(1));
    Ok(())
}

/// AUTH.
pub(crate) fn auth(door: &mut Door, call: &mut Call<'_>) -> Done {
    let (user, password) = match call.len() {
        2 => (&b"default"[..], call.arg(1)),
        3 => (call.arg(1), call.arg(2)),
        _ => return Err(SYNTAX),
    };
    if door.password.is_none() && call.len() == 2 {
        return Err(Fail::Say(
            "ERR AUTH <password> called without any password configured for the default user. Are \
             you sure your configuration is correct?",
        ));
    }
    log_in(door, call, user, password)?;
    call.out.ok();
    Ok(())
}

/// Compares digests, which takes the same time whatever was given.
fn log_in(door: &mut Door, call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Done {
    let given = blake3::hash(password);
    let right = door.password.is_none_or(|wanted| wanted == given);
    if right && user == b"default" {
        call.session.authenticated = true;
        return Ok(());
    }
    door.counters.wrong_passwords += 1;
    call.session.wrong_passwords += 1;
    call.session.closing |= call.session.wrong_passwords >= WRONG_PASSWORDS_MAX;
    Err(WRONG_PASSWORD)
}

/// HELLO.
pub(crate) fn hello(door: &mut Door, call: &mut Call<'_>) -> Done {
    let mut protocol = call.out.protocol();
    if call.len() > 1 {
        let wanted = number::integer(call.arg(1))
            .ok_or(Fail::Say("ERR Protocol version is not an integer or out of range"))?;
        protocol = match wanted {
            2 => 2,
            3 => 3,
            _ => return Err(Fail::Say("NOPROTO unsupported protocol version")),
        };
    }
    let (mut at, mut name) = (2, None);
    let mut login = None;
    while at < call.len() {
        if call.is(at, "auth") && at + 2 < call.len() {
            login = Some((call.arg(at + 1), call.arg(at + 2)));
            at += 3;
        } else if call.is(at, "setname") && at + 1 < call.len() {
            name = Some(call.arg(at + 1));
            at += 2;
        } else {
            let word = String::from_utf8_lossy(call.arg(at)).into_owned();
            return Err(Fail::Long(format!("ERR Syntax error in HELLO option '{word}'")));
        }
    }
    if let Some((user, password)) = login {
        log_in(door, call, user, password)?;
    }
    if !call.session.authenticated {
        return Err(Fail::Say(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        client::check_name(name)?;
        if let Some(client) = door.clients.get_mut(&call.session.id) {
            client.name = Bytes::copy_from_slice(name);
        }
    }
    speak(door, call, protocol);
    greet(call);
    Ok(())
}

fn speak(door: &mut Door, call: &mut Call<'_>, protocol: u8) {
    call.out.speak(protocol);
    if let Some(client) = door.clients.get_mut(&call.session.id) {
        client.protocol = protocol;
    }
}

fn greet(call: &mut Call<'_>) {
    let protocol = i64::from(call.out.protocol());
    let id = i64::try_from(call.session.id).unwrap_or(i64::MAX);
    let out = &mut call.out;
    out.map(7);
    for (name, text) in [("server", "redis"), ("version", REDIS_VERSION)] {
        out.bulk(name.as_bytes());
        out.bulk(text.as_bytes());
    }
    for (name, number) in [("proto", protocol), ("id", id)] {
        out.bulk(name.as_bytes());
        out.integer(number);
    }
    for (name, text) in [("mode", "standalone"), ("role", "master")] {
        out.bulk(name.as_bytes());
        out.bulk(text.as_bytes());
    }
    out.bulk(b"modules");
    out.array(0);
}

/// SELECT.
pub(crate) fn select(_: &mut Door, call: &mut Call<'_>) -> Done {
    let index = number::integer(call.arg(1))
        .ok_or(Fail::Say("ERR value is not an integer or out of range"))?;
    if index != 0 {
        return Err(Fail::Say("ERR DB index is out of range"));
    }
    call.out.ok();
    Ok(())
}

/// QUIT.
pub(crate) fn quit(_: &mut Door, call: &mut Call<'_>) -> Done {
    call.session.closing = true;
    call.out.ok();
    Ok(())
}

/// RESET.
pub(crate) fn reset(door: &mut Door, call: &mut Call<'_>) -> Done {
    let id = call.session.id;
    door.watchers.retain(|watcher| watcher.client != id);
    let session = &mut *call.session;
    session.watching = 0;
    session.transaction = None;
    session.watched.clear();
    session.authenticated = door.password.is_none();
    if let Some(client) = door.clients.get_mut(&id) {
        client.name = Bytes::new();
    }
    speak(door, call, 2);
    call.out.simple("RESET");
    Ok(())
}
