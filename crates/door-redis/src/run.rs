//! One command: found in the table, allowed or not, executed, and taken back where it fails.

use crate::batch::Save;
use crate::door::Door;
use crate::fail::Fail;
use crate::parse::{Arguments, Kept};
use crate::reply::{Output, Place};
use crate::session::{Call, QUEUED_BYTES_MAX, QUEUED_MAX, Session};
use crate::table::{Command, FIRST, LATER, NO_AUTH, WATCHING};

/// How much of an unknown command is repeated in its error.
const REPEATED_BYTES: usize = 128;
/// An answer that may always be given, however many answers of others wait, in bytes.
const ANSWER_BYTES_MIN: usize = 64 << 10;
/// Arguments of a command that writes. At most as many records come of it: one an argument, or two where each key or member has two
/// arguments.
pub(crate) const WRITE_ARGUMENTS_MAX: usize = 50_000;

impl Door {
    /// Executes one request; the batch, not yet written, that its answer depends on.
    pub(crate) fn execute(
        &mut self,
        session: &mut Session,
        args: Arguments<'_>,
        out: &mut Output,
    ) -> Option<u32> {
        (self.touched, self.leans) = (false, false);
        self.begin_command();
        let limits = &self.options.limits;
        let room = limits.outputs_bytes.saturating_sub(self.outputs_bytes + out.held());
        out.begin_answer(limits.output_bytes, room.max(ANSWER_BYTES_MIN));
        self.counters.commands += 1;
        match self.allowed(session, &args, out) {
            Ok(command) => {
                let queued = session.transaction.is_some() && command.flags & FIRST == 0;
                if queued {
                    queue(session, command, &args, out);
                } else {
                    let (save, place) = (self.save(), out.place());
                    self.run(command, session, args, out);
                    // Those that answer one value have not asked: it is given whatever the bound of one answer.
                    if out.is_crowded()
                        && let Err(fail) = out.fits()
                    {
                        self.take_back(save, place, out, &fail);
                    }
                }
            }
            Err(fail) => {
                self.counters.errors += 1;
                if let Some(transaction) = &mut session.transaction {
                    transaction.broken = true;
                }
                out.error(&fail.text());
            }
        }
        self.depends()
    }

    /// Executes a command that is allowed; what it wrote is taken back if it fails.
    pub(crate) fn run(
        &mut self,
        command: &'static Command,
        session: &mut Session,
        args: Arguments<'_>,
        out: &mut Output,
    ) {
        let (save, place) = (self.save(), out.place());
        if let Err(fail) = (command.run)(self, &mut Call { args, out, session }) {
            self.take_back(save, place, out, &fail);
        }
    }

    /// Takes back what a command wrote and answered, and answers why.
    fn take_back(&mut self, save: Save, place: Place, out: &mut Output, fail: &Fail) {
        self.counters.errors += 1;
        self.back_to(save);
        out.cut(place);
        out.error(&fail.text());
    }

    fn allowed(
        &self,
        session: &mut Session,
        args: &Arguments<'_>,
        out: &Output,
    ) -> Result<&'static Command, Fail> {
        let name = args.get(0);
        let Some(command) = self.table.find(name) else {
            // A browser that was led here speaks HTTP: what follows its header is no command.
            session.closing |=
                name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:");
            return Err(unknown(args));
        };
        if !command.takes(args.len()) {
            return Err(arity(command.name));
        }
        if !session.authenticated && command.flags & NO_AUTH == 0 {
            return Err(Fail::Say("NOAUTH Authentication required."));
        }
        if command.flags & crate::table::WRITE != 0 && args.len() > WRITE_ARGUMENTS_MAX {
            return Err(Fail::Say(
                "ERR too many arguments for one command that writes: at most 50000, make several",
            ));
        }
        if session.watching > 0 && out.protocol() == 2 && command.flags & WATCHING == 0 {
            return Err(Fail::Long(format!(
                "ERR Can't execute '{}': only HOLD.WATCH / HOLD.UNWATCH / PING / QUIT / RESET are \
                 allowed in this context",
                command.name
            )));
        }
        if session.transaction.is_some() && command.flags & LATER != 0 {
            return Err(Fail::Long(format!(
                "ERR {} inside MULTI is not allowed",
                command.name.to_uppercase()
            )));
        }
        Ok(command)
    }
}

fn queue(session: &mut Session, command: &'static Command, args: &Arguments<'_>, out: &mut Output) {
    let Some(transaction) = &mut session.transaction else { return };
    let bytes: usize = args.from(0).map(|argument| argument.len() + size_of::<Kept>()).sum();
    if transaction.commands.len() >= QUEUED_MAX || transaction.bytes + bytes > QUEUED_BYTES_MAX {
        transaction.broken = true;
        return out.error("ERR the transaction is too large: at most 65536 commands and 32 MiB");
    }
    transaction.bytes += bytes;
    transaction.commands.push((command, Kept::of(args)));
    out.simple("QUEUED");
}

/// The error for a wrong number of arguments.
pub(crate) fn arity(name: &str) -> Fail {
    Fail::Long(format!("ERR wrong number of arguments for '{name}' command"))
}

fn unknown(args: &Arguments<'_>) -> Fail {
    let clip = |bytes: &[u8], most: usize| {
        String::from_utf8_lossy(bytes.get(..most.min(bytes.len())).unwrap_or_default()).into_owned()
    };
    let name = args.get(0);
    if let Some(why) = crate::table::absent(name) {
        return Fail::Long(format!("ERR unknown command '{}': {why}", clip(name, 32)));
    }
    let mut rest = String::new();
    for argument in args.from(1) {
        if rest.len() >= REPEATED_BYTES {
            break;
        }
        let left = REPEATED_BYTES - rest.len();
        rest.push_str(&format!("'{}' ", clip(argument, left)));
    }
    Fail::Long(format!(
        "ERR unknown command '{}', with args beginning with: {rest}",
        clip(name, REPEATED_BYTES)
    ))
}
