//! A round as the blocks tell it: the same at every member, and at whoever reads the blocks.

use std::num::NonZeroU32;

use bytes::Bytes;
use commonware_codec::{Decode as _, Encode as _};
use commonware_cryptography::bls12381::dkg::feldman_desmedt::{
    DealerLog, Failure, Info, Logs, Reveal, SignedDealerLog, observe,
};
use commonware_cryptography::bls12381::primitives::sharing::{Mode, ModeVersion};
use commonware_cryptography::bls12381::primitives::variant::MinSig;
use commonware_cryptography::transcript::{Transcript, Version};
use commonware_parallel::Sequential;
use commonware_utils::ordered::Set;
use commonware_utils::{Faults as _, N3f1, NZU32};
use crypto::NetworkId;

use super::{
    Change, DEALT_NAMESPACE, Dealt, Ended, Members, Place, ROUND_MS, Round, Wish, dealt_message,
    is_signed,
};
use crate::engine::{DkgOutcome, Key, MEMBERS_MAX, MEMBERS_MIN, MemberId, dkg_namespace};
use crate::entry::Entry;
use crate::outcome::Outcome;
use crate::state::{Moment, State};
use crate::{CommitteeError, Rules};

pub(crate) type DkgInfo = Info<MinSig, Key>;
pub(crate) type DkgLog = DealerLog<MinSig, Key>;
pub(crate) type DkgLogs = Logs<MinSig, Key, N3f1>;

const CHECK: &[u8] = b"holdfast dealers' logs v1";

/// The most members, as the engine wants it.
pub(crate) fn most() -> NonZeroU32 {
    NonZeroU32::new(MEMBERS_MAX as u32).unwrap_or(NZU32!(1))
}

/// What a round, or the founding, made.
pub(crate) fn read_outcome(bytes: &Bytes) -> Result<DkgOutcome, CommitteeError> {
    let read = DkgOutcome::decode_cfg(bytes.clone(), &(most(), ModeVersion::v0()));
    read.map_err(|_| CommitteeError::Field("outcome of the key generation"))
}

/// The keys of places, as the engine wants them.
pub(crate) fn keys(places: &[Place]) -> Result<Set<Key>, CommitteeError> {
    let keys = places.iter().map(|place| place.member.key()).collect::<Result<Vec<_>, _>>()?;
    let count = keys.len();
    let keys = Set::from_iter_dedup(keys);
    if keys.len() == count { Ok(keys) } else { Err(CommitteeError::Field("set of members")) }
}

/// What a round's messages are bound to.
pub(crate) fn info(
    network: &NetworkId,
    number: u64,
    before: &DkgOutcome,
    players: &[Place],
) -> Result<DkgInfo, CommitteeError> {
    let (mode, reveal) = (Mode::NonZeroCounter, Reveal::V1);
    let (dealers, players) = (before.players().clone(), keys(players)?);
    let before = Some(before.clone());
    let namespace = dkg_namespace(network);
    Info::new::<N3f1>(&namespace, number, before, mode, reveal, dealers, players)
        .map_err(|_| CommitteeError::Field("set of dealers or players"))
}

/// A signed log, and whose it is.
pub(crate) fn read_log(info: &DkgInfo, bytes: &Bytes) -> Option<(Key, DkgLog)> {
    let signed = SignedDealerLog::decode_cfg(bytes.clone(), &most()).ok()?;
    signed.check(info)
}

/// Randomness for checks in batches that depends on all that is checked: whoever makes the bytes cannot choose it, and every member
/// has the same.
fn randomness(logs: &[&Bytes]) -> impl rand_core::CryptoRng {
    let mut transcript = Transcript::new(CHECK, Version::V1);
    for log in logs {
        transcript.commit(&log[..]);
    }
    transcript.noise(b"check")
}

/// Whether a log by itself can be used.
fn is_usable(info: &DkgInfo, dealer: &Key, log: &DkgLog, bytes: &Bytes) -> bool {
    let mut logs = DkgLogs::new(info.clone());
    logs.record(dealer.clone(), log.clone());
    let alone = observe(&mut randomness(&[bytes]), logs, &Sequential);
    match alone {
        Ok(_) => true,
        Err(Failure::InsufficientLogs { found, .. }) => found == 1,
    }
}

/// The usable logs of the last round, in the order of their dealers.
pub(crate) fn logs(state: &State, info: &DkgInfo, number: u64) -> DkgLogs {
    let mut logs = DkgLogs::new(info.clone());
    for dealt in state.dealt(number).filter(|dealt| dealt.usable) {
        if let Some((dealer, log)) = read_log(info, &dealt.log) {
            logs.record(dealer, log);
        }
    }
    logs
}

/// Does what a change asks for, or says why not. A refused one changes nothing.
pub(crate) fn apply(state: &mut State, rules: &Rules, moment: Moment, change: &Change) -> Outcome {
    let Some(members) = state.members() else { return Outcome::NotValid };
    match change {
        Change::Wanted { wish, signatures } => {
            begin(state, rules, moment, members, wish, signatures)
        }
        Change::Dealt { number, signature, log } => {
            let dealt = Log { number: *number, signature, log };
            take_log(state, rules, moment, members, &dealt)
        }
    }
}

fn begin(
    state: &mut State,
    rules: &Rules,
    moment: Moment,
    mut members: Members,
    wish: &Wish,
    signatures: &[(MemberId, [u8; 64])],
) -> Outcome {
    if wish.epoch != members.epoch || Some(wish.number) != members.number.checked_add(1) {
        return Outcome::RolledBack { newest: members.number };
    }
    let is_member = |key: &MemberId| members.members.iter().any(|place| place.member == *key);
    let enough = signatures.len() as u32 >= N3f1::quorum(members.members.len());
    // Signatures are verified where there are enough alone: each costs every member.
    let hold = |(key, signature): &(MemberId, [u8; 64])| {
        is_member(key) && wish.is_signed(rules, key, signature)
    };
    if !enough || !signatures.iter().all(hold) {
        return Outcome::NotAWriter;
    }
    if keys(&wish.members).is_err() {
        return Outcome::NotValid;
    }
    members.number = wish.number;
    members.ended = match &members.round {
        None => Ended::NotYet,
        Some(_) if members.round_at(moment.time_ms).is_none() => Ended::TooLate,
        Some(_) => Ended::Replaced,
    };
    let (began_ms, players) = (moment.time_ms, wish.members.clone());
    members.round = Some(Round { began_ms, least: wish.least, usable: 0, lost: 0, players });
    state.put(&Entry::Members(members));
    Outcome::Accepted { height: moment.height }
}

/// A dealer's log, as an update carries it.
#[derive(Clone, Copy)]
struct Log<'a> {
    number: u64,
    signature: &'a [u8; 64],
    log: &'a Bytes,
}

fn take_log(
    state: &mut State,
    rules: &Rules,
    moment: Moment,
    mut members: Members,
    dealt: &Log<'_>,
) -> Outcome {
    let (newest, Log { number, log, .. }) = (members.number, *dealt);
    let Some(mut round) = members.round.take().filter(|_| number == newest) else {
        return Outcome::RolledBack { newest };
    };
    if moment.time_ms > round.began_ms.saturating_add(ROUND_MS) {
        return Outcome::Expired;
    }
    // A log begins with its dealer.
    let dealer = log.first_chunk::<32>().map(|key| MemberId::new(*key));
    let slot = members.members.iter().position(|place| Some(place.member) == dealer);
    let (Some(slot), Some(dealer)) = (slot.map(|slot| slot as u8), dealer) else {
        return Outcome::NotAWriter;
    };
    if state.dealt_at(slot).is_some_and(|dealt| dealt.number == number) {
        return Outcome::RolledBack { newest };
    }
    let message = dealt_message(rules, number, log);
    if !is_signed(DEALT_NAMESPACE, &message, &dealer, dealt.signature) {
        return Outcome::NotAWriter;
    }
    // What follows takes milliseconds, and is done once a dealer and number: what the dealer signed is its one log.
    let Ok(before) = read_outcome(&members.outcome) else { return Outcome::NotValid };
    let Ok(info) = info(&rules.network, number, &before, &round.players) else {
        return Outcome::NotValid;
    };
    let read = read_log(&info, log).filter(|(key, _)| MemberId::of(key) == dealer);
    let usable = read.is_some_and(|(key, read)| is_usable(&info, &key, &read, log));
    state.put(&Entry::Dealt(Dealt { slot, number, usable, log: log.clone() }));
    if usable {
        round.usable += 1
    } else {
        round.lost += 1
    }
    let count = members.members.len();
    let needed = N3f1::quorum(count);
    if u32::from(round.usable) >= needed {
        end(state, &info, moment, &mut members, round);
    } else if u32::from(round.lost) > count as u32 - needed {
        members.ended = Ended::FewDealers;
    } else {
        members.round = Some(round);
    }
    state.put(&Entry::Members(members));
    Outcome::Accepted { height: moment.height }
}

/// Ends a round whose logs are all here: with the next epoch, without those whose share was shown, or with nothing.
fn end(state: &State, info: &DkgInfo, moment: Moment, members: &mut Members, round: Round) {
    let all: Vec<Dealt> = state.dealt(members.number).filter(|dealt| dealt.usable).collect();
    let bytes: Vec<&Bytes> = all.iter().map(|dealt| &dealt.log).collect();
    let logs = logs(state, info, members.number);
    let Ok(outcome) = observe(&mut randomness(&bytes), logs, &Sequential) else {
        members.ended = Ended::FewDealers;
        return;
    };
    let shown = outcome.revealed();
    if shown.is_empty() {
        members.epoch += 1;
        members.ended = Ended::Changed;
        members.outcome = outcome.encode();
        members.before = std::mem::replace(&mut members.members, round.players);
        return;
    }
    let Round { least, mut players, .. } = round;
    let is_shown = |place: &Place| shown.iter().any(|key| MemberId::of(key) == place.member);
    players.retain(|place| !is_shown(place));
    if players.len() < usize::from(least).max(MEMBERS_MIN) {
        members.ended = Ended::FewPlayers;
        return;
    }
    let Some(number) = members.number.checked_add(1) else {
        members.ended = Ended::FewPlayers;
        return;
    };
    members.number = number;
    members.ended = Ended::Shown;
    members.round = Some(Round { began_ms: moment.time_ms, least, usable: 0, lost: 0, players });
}
