//! Who takes part in a trial of certified heads, and what befalls them.

use crate::chance::Chance;

/// Who lies, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// Nobody: crashes, cuts and slow ways alone.
    Honest,
    /// The last member's key runs on two machines, and each of the others sees one of them: it proposes and votes twice.
    Twins,
    /// The last member gives its blocks and what clients sent it to nobody.
    Withholder,
    /// What the last member says takes long.
    Delayer,
    /// What the last member says is changed on its way out.
    Forger,
    /// Twins, and an honest member that loses its votes and its disk but not its share, while it sees the other twin.
    Amnesiac,
}

/// All of them, in the order of the seeds.
pub const CASTS: [Cast; 6] =
    [Cast::Twins, Cast::Honest, Cast::Withholder, Cast::Amnesiac, Cast::Delayer, Cast::Forger];

/// What befalls the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Those on one side are cut off from the others.
    Cut(Vec<usize>),
    /// All reach each other again.
    Join,
    /// The member is killed, and starts again so many milliseconds later.
    Crash(usize, u64),
    /// All are killed at once, and start again.
    CrashAll(u64),
    /// What one says to another takes so many milliseconds.
    Delay(usize, usize, u64),
    /// The twins change sides: who sees the second one.
    Sides(Vec<usize>),
    /// The member is killed, loses its votes and its chain, and starts again on the other side.
    Forget(usize),
    /// The members' operators ask for new shares: an epoch ends, if enough of them run. A second machine under a liar's key has the
    /// old share alone from then on.
    Refresh,
}

/// What a seed decides.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) cast: Cast,
    pub(super) members: usize,
    pub(super) clients: usize,
    /// What befalls them, and after how many milliseconds of calm.
    pub(super) troubles: Vec<(u64, Trouble)>,
    /// What a way takes, at least and at most, in milliseconds.
    pub(super) ways: (u64, u64),
}

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed, "heads");
        let cast = CASTS[(seed % CASTS.len() as u64) as usize];
        // Seven members take twice as long.
        let seven = cast != Cast::Amnesiac && chance.permille(80);
        let members = if seven { 7 } else { 4 };
        let longest = chance.one(&[3, 20, 60]);
        let troubles = match cast {
            Cast::Amnesiac => amnesia(&mut chance),
            _ => (0..4 + chance.below(4)).map(|_| trouble(&mut chance, cast, members)).collect(),
        };
        Self { cast, members, clients: 3, troubles, ways: (1, longest) }
    }

    /// The member that lies, if one does.
    pub(super) fn liar(&self) -> Option<usize> {
        (self.cast != Cast::Honest).then(|| self.members - 1)
    }

    /// Whether the liar's key runs twice.
    pub(super) fn has_twins(&self) -> bool {
        matches!(self.cast, Cast::Twins | Cast::Amnesiac)
    }
}

fn some(chance: &mut Chance, members: usize) -> Vec<usize> {
    (0..members).filter(|_| chance.permille(500)).collect()
}

fn trouble(chance: &mut Chance, cast: Cast, members: usize) -> (u64, Trouble) {
    let after = 500 + chance.below(3_000);
    let what = match chance.below(if cast == Cast::Twins { 14 } else { 11 }) {
        0 | 1 => Trouble::Cut(some(chance, members)),
        2 | 3 => Trouble::Join,
        4 | 5 => Trouble::Crash(chance.index(members), 100 + chance.below(4_000)),
        6 => Trouble::CrashAll(100 + chance.below(1_000)),
        7 | 8 => Trouble::Refresh,
        9 | 10 => {
            let (one, other) = (chance.index(members), chance.index(members));
            Trouble::Delay(one, other, chance.below(400))
        }
        _ => Trouble::Sides(some(chance, members - 1)),
    };
    (after, what)
}

/// One side agrees with the first twin; then one of it forgets all and joins the other side, where a member waits that saw none of
/// it. Without its votes it must not help the second twin and that member to another chain.
fn amnesia(chance: &mut Chance) -> Vec<(u64, Trouble)> {
    let away = chance.index(3);
    let forgets = (away + 1 + chance.index(2)) % 3;
    vec![
        (500, Trouble::Sides(vec![away])),
        (1, Trouble::Cut(vec![away])),
        (4_000 + chance.below(2_000), Trouble::Forget(forgets)),
        (12_000, Trouble::Join),
    ]
}
