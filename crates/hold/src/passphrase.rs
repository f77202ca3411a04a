//! The keyring's passphrase: from a file, the environment, or a prompt without echo.

use std::ffi::OsString;

use zeroize::Zeroizing;

use crate::cli::Session;
use crate::client::blocking;
use crate::environment;
use crate::error::HoldError;
use crate::{files, platform};

/// The longest passphrase, in bytes.
const PASSPHRASE_BYTES_MAX: usize = 4096;
pub(crate) const NO_TERMINAL: &str = "a passphrase is needed and there is no terminal to ask at";
const NO_TEXT: &str = "HOLD_PASSPHRASE is not UTF-8";

/// What the passphrase is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To open the keyring: asked once.
    Open,
    /// To make one: asked twice.
    Choose,
}

/// The passphrase, from `--passphrase-file`, `HOLD_PASSPHRASE`, or the terminal, in this order.
/// A file's last line end does not belong to it.
///
/// # Errors
/// Where there is none, it is no UTF-8, or the two that were typed differ.
pub(crate) async fn ask(
    session: &Session,
    purpose: Purpose,
) -> Result<Zeroizing<String>, HoldError> {
    let given = match &session.config()?.passphrase_file {
        Some(path) => {
            let from = path.clone();
            // A named pipe waits for its writer, and Ctrl-C ends the wait.
            let read = blocking(move || files::read_small(&from));
            let bytes = tokio::select! {
                biased;
                () = session.stop.cancelled() => return Err(HoldError::Interrupted),
                read = read => read?,
            };
            let text = std::str::from_utf8(&bytes).map_err(|_| HoldError::NotA {
                what: "a passphrase in UTF-8",
                path: path.clone(),
            })?;
            let text = text.trim_end_matches(['\r', '\n']);
            if text.is_empty() {
                return Err(HoldError::NotA {
                    what: "a passphrase: it is empty",
                    path: path.clone(),
                });
            }
            Some(Zeroizing::new(text.to_owned()))
        }
        None => {
            let given = environment::value("HOLD_PASSPHRASE").map(OsString::into_string);
            let given = given.transpose().map_err(|_| HoldError::Passphrase(NO_TEXT))?;
            given.map(Zeroizing::new)
        }
    };
    let passphrase = match given {
        Some(given) => given,
        None => prompt(session, purpose).await?,
    };
    if passphrase.len() > PASSPHRASE_BYTES_MAX {
        return Err(HoldError::Passphrase("the passphrase is over 4096 bytes"));
    }
    if purpose == Purpose::Choose && passphrase.is_empty() {
        return Err(HoldError::Passphrase("an empty passphrase protects nothing"));
    }
    Ok(passphrase)
}

/// Asks at the terminal, on a thread of its own so that Ctrl-C ends the wait.
async fn prompt(session: &Session, purpose: Purpose) -> Result<Zeroizing<String>, HoldError> {
    if !platform::can_ask() {
        return Err(HoldError::Passphrase(NO_TERMINAL));
    }
    let asked = tokio::task::spawn_blocking(move || {
        let first = Zeroizing::new(rpassword::prompt_password("Passphrase of the keyring: ")?);
        if purpose == Purpose::Choose {
            let again = Zeroizing::new(rpassword::prompt_password("The same again: ")?);
            return Ok((again == first).then_some(first));
        }
        Ok::<_, std::io::Error>(Some(first))
    });
    tokio::select! {
        asked = asked => match asked {
            Ok(Ok(Some(passphrase))) => Ok(passphrase),
            Ok(Ok(None)) => Err(HoldError::Passphrase("the two passphrases differ")),
            // Ctrl-C, where the prompt has the terminal and no signal comes of it.
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => {
                Err(HoldError::Interrupted)
            }
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(HoldError::Passphrase("no passphrase was typed"))
            }
            Ok(Err(_)) | Err(_) => Err(HoldError::Passphrase(NO_TERMINAL)),
        },
        () = session.stop.cancelled() => Err(HoldError::Interrupted),
    }
}
