//! What a peer keeps of leases beside the records, as records of kind `lease`.
//!
//! ```text
//! LeaseKept   pass 1 (bytes: a Signed Pass) | holding 2 (Holding) | forget 3 (Buried)
//! Holding     lease 1 (bytes: a Signed Lease) · leaves 2 (repeated bytes: Leaf) · unleased 3 (repeated u32, packed: which of
//!             the leaves' records were here before without a lease) · pass 4 (32: the record of its pass) · charged 5 (repeated)
//! Charged     leaf 1 (u32: which of the leaves) · client 2 (33) · bytes 3 (u64)
//! Buried      forget 1 (bytes: a Signed Forget) · heard_ms 2 (u64) · until 3 (u64)
//! ```
//! The record's id is the BLAKE3 of its bytes, in both suites.

use bytes::Bytes;
use prost::Message;

use super::{LeaseError, Shown, ShownLeaf};
use crate::{ClientKey, Place, RecordId, canonical};

/// What one record of kind `lease` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A signed pass, for the leases that name it.
    Pass(Bytes),
    /// Leaves of a lease whose records are here.
    Holding(Holding),
    /// A word that ended a lease.
    Buried {
        /// The signed word.
        forget: Bytes,
        /// When it was heard, Unix milliseconds.
        heard_ms: u64,
        /// Until when it is kept, Unix seconds.
        until: u64,
    },
}

/// Leaves of a lease, with their records' state when they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The signed lease.
    pub lease: Bytes,
    /// The record with its pass.
    pub pass: RecordId,
    /// Each leaf, and whether its record was here before without a lease.
    pub leaves: Vec<(ShownLeaf, bool)>,
    /// Who was charged for the records of some of the leaves, by the quota of a pass, in the order of the leaves.
    pub charged: Vec<Charged>,
}

/// Who stored what is at a leaf's place, and was charged for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Which of the leaves beside it, from 0.
    pub leaf: u32,
    /// Who.
    pub client: ClientKey,
    /// How many bytes.
    pub bytes: u64,
}

impl Holding {
    /// The lease with the leaf of one place, and its pass, as a client shows it.
    pub fn shown(&self, pass: Bytes, place: &Place) -> Option<Shown> {
        let of = self.leaves.iter().find(|(shown, _)| shown.leaf.place == *place);
        let (leaf, _) = of?;
        Some(Shown { lease: self.lease.clone(), pass, leaves: vec![leaf.clone()] })
    }
}

#[derive(Clone, PartialEq, Message)]
struct KeptWire {
    #[prost(bytes = "bytes", tag = "1")]
    pass: Bytes,
    #[prost(message, optional, tag = "2")]
    holding: Option<HoldingWire>,
    #[prost(message, optional, tag = "3")]
    buried: Option<BuriedWire>,
}

#[derive(Clone, PartialEq, Message)]
struct HoldingWire {
    #[prost(bytes = "bytes", tag = "1")]
    lease: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    leaves: Vec<Bytes>,
    #[prost(uint32, repeated, tag = "3")]
    unleased: Vec<u32>,
    #[prost(bytes = "bytes", tag = "4")]
    pass: Bytes,
    #[prost(message, repeated, tag = "5")]
    charged: Vec<ChargedWire>,
}

#[derive(Clone, PartialEq, Message)]
struct ChargedWire {
    #[prost(uint32, tag = "1")]
    leaf: u32,
    #[prost(bytes = "bytes", tag = "2")]
    client: Bytes,
    #[prost(uint64, tag = "3")]
    bytes: u64,
}

impl ChargedWire {
    fn new(charged: &Charged) -> Self {
        let Charged { leaf, client, bytes } = *charged;
        Self { leaf, client: Bytes::copy_from_slice(client.as_bytes()), bytes }
    }

    fn open(&self) -> Result<Charged, LeaseError> {
        let client = ClientKey::from_slice(&self.client);
        let client = client.map_err(|_| LeaseError::Field("client that was charged"))?;
        Ok(Charged { leaf: self.leaf, client, bytes: self.bytes })
    }
}

#[derive(Clone, PartialEq, Message)]
struct BuriedWire {
    #[prost(bytes = "bytes", tag = "1")]
    forget: Bytes,
    #[prost(uint64, tag = "2")]
    heard_ms: u64,
    #[prost(uint64, tag = "3")]
    until: u64,
}

/// The id of a record of kind `lease` with these bytes.
pub fn kept_id(bytes: &[u8]) -> RecordId {
    RecordId::new(*blake3::hash(bytes).as_bytes())
}

impl Kept {
    /// The canonical bytes.
    pub fn encode(&self) -> Bytes {
        let mut wire = KeptWire::default();
        match self {
            Self::Pass(pass) => wire.pass = pass.clone(),
            Self::Holding(Holding { lease, pass, leaves, charged }) => {
                let bare = leaves.iter().zip(0..).filter(|((_, unleased), _)| *unleased);
                wire.holding = Some(HoldingWire {
                    lease: lease.clone(),
                    leaves: leaves.iter().map(|(leaf, _)| leaf.encode()).collect(),
                    unleased: bare.map(|(_, index)| index).collect(),
                    pass: Bytes::copy_from_slice(pass.as_bytes()),
                    charged: charged.iter().map(ChargedWire::new).collect(),
                });
            }
            Self::Buried { forget, heard_ms, until } => {
                let (forget, heard_ms, until) = (forget.clone(), *heard_ms, *until);
                wire.buried = Some(BuriedWire { forget, heard_ms, until });
            }
        }
        wire.encode_to_vec().into()
    }

    /// What a record keeps.
    ///
    /// # Errors
    /// [`LeaseError::Encoding`], [`LeaseError::Field`].
    pub fn decode(bytes: &Bytes) -> Result<Self, LeaseError> {
        let wire: KeptWire = canonical::decode(bytes)?;
        match (wire.pass.is_empty(), wire.holding, wire.buried) {
            (false, None, None) => Ok(Self::Pass(wire.pass)),
            (true, Some(holding), None) => {
                let marked = |index: u32| holding.unleased.contains(&index);
                let leaves = holding.leaves.iter().zip(0..).map(|(leaf, index)| {
                    Ok::<_, LeaseError>((ShownLeaf::decode(leaf)?, marked(index)))
                });
                let leaves = leaves.collect::<Result<_, _>>()?;
                let pass = RecordId::from_slice(&holding.pass);
                let pass = pass.map_err(|_| LeaseError::Field("pass"))?;
                let charged = holding.charged.iter().map(ChargedWire::open);
                let charged = charged.collect::<Result<_, _>>()?;
                Ok(Self::Holding(Holding { lease: holding.lease, pass, leaves, charged }))
            }
            (true, None, Some(BuriedWire { forget, heard_ms, until })) => {
                Ok(Self::Buried { forget, heard_ms, until })
            }
            _ => Err(LeaseError::Field("kind of what is kept")),
        }
    }
}

/// The id of the record that keeps a pass.
pub fn pass_id(pass: &Bytes) -> RecordId {
    kept_id(&Kept::Pass(pass.clone()).encode())
}
