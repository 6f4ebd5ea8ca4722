// SPDX-License-Identifier: GPL-2.0

//! The numbers by which contexts and queue pairs are named.

/// The number of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextId(pub(crate) u32);

impl ContextId {
    /// Numbers are below this: the most contexts that may be open at a time.
    pub const LIMIT: u32 = 1 << 16;

    /// The context of a number, if there is one.
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The number, below [`LIMIT`](Self::LIMIT).
    pub fn number(self) -> u32 {
        self.0
    }
}

/// The name of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpId {
    /// The number, which is unique in the engine: the index in the low 16 bits, above them how
    /// often the index was used.
    pub number: u32,
    /// Tells the queue pairs of one number apart, in all engines of the device: `qp_gen` of a
    /// completion.
    pub generation: u32,
}

impl QpId {
    /// The queue pair number, of 24 bits, by which peers and completions know it. Those for general
    /// services have the same one on each virtual port.
    pub fn qpn(self) -> u32 {
        qpn(self.number)
    }
}

/// The number of the queue pair for general services.
pub const GSI: u32 = 1;

/// A virtual port: one of the adapters that an engine serves, each with a port of its own and the
/// queue pairs there.
///
/// Queue pairs of one virtual port reach those of another only by its address, as if a switch were
/// between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vport(pub(crate) u8);

impl Vport {
    /// Numbers are below this.
    pub const LIMIT: u8 = 64;

    /// The virtual port of a number; none for [`LIMIT`](Self::LIMIT) and above.
    pub fn from_number(number: u8) -> Option<Self> {
        (number < Self::LIMIT).then_some(Self(number))
    }

    /// The number in the engine of the queue pair that the virtual port knows by this number of 24
    /// bits.
    ///
    /// Nobody can name a queue pair of another virtual port by the answer: with general services
    /// for port 0 the number stays, for others it gets a bit above the 24.
    #[inline]
    pub(crate) fn number(self, qpn: u32) -> u32 {
        match (qpn, self.0) {
            (GSI, 1..) => FOREIGN_GSI | GSI.wrapping_add(u32::from(self.0)),
            _ => qpn,
        }
    }
}

/// Where something counts: at a virtual port, or in a set of counters of its own.
///
/// A port has the place of its number, and the sets come behind all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedAt(pub(crate) u16);

impl CountedAt {
    /// The most sets of counters that there may be at a time.
    pub const SETS: u16 = 256;

    /// The set of a number from 1 to [`SETS`](Self::SETS), if it is one.
    pub fn from_number(number: u32) -> Option<Self> {
        let number = u16::try_from(number).ok()?;
        (1..=Self::SETS)
            .contains(&number)
            .then(|| Self(number.wrapping_add(FIRST_SET.wrapping_sub(1))))
    }

    /// The number of a set.
    pub fn number(self) -> u32 {
        u32::from(self.0.wrapping_sub(FIRST_SET.wrapping_sub(1)))
    }
}

/// The place of the first set.
const FIRST_SET: u16 = Vport::LIMIT as u16;

impl From<Vport> for CountedAt {
    #[inline]
    fn from(vport: Vport) -> Self {
        Self(vport.0.into())
    }
}

impl From<CountedAt> for usize {
    #[inline]
    fn from(place: CountedAt) -> Self {
        place.0.into()
    }
}

impl From<Vport> for usize {
    fn from(vport: Vport) -> Self {
        vport.0.into()
    }
}

/// The bit above queue pair numbers, in those in the engine for general services of all virtual
/// ports but the first.
const FOREIGN_GSI: u32 = 1 << 24;

/// The queue pair number of a number in the engine.
#[inline]
pub(crate) fn qpn(number: u32) -> u32 {
    if number & FOREIGN_GSI == 0 {
        number
    } else {
        GSI
    }
}
