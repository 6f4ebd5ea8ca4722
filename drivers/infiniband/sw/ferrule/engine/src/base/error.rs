// SPDX-License-Identifier: GPL-2.0

//! The errors of the control path.

/// Why the control path refused.
///
/// [`Error::errno`] names the error number that a verb answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An argument, attribute or state transition is not valid (`EINVAL`).
    Invalid,
    /// The object does not exist (`EINVAL`: a verb names only its own objects).
    NotFound,
    /// The request is valid, but the engine does not offer it (`EOPNOTSUPP`).
    NotSupported,
    /// The object is still used by another one (`EBUSY`).
    Busy,
    /// A copy job uses the object (`EBUSY`).
    ///
    /// The host waits until [`Engine::carried`](crate::Engine::carried) says that somebody does,
    /// and tries again. No job begins with the object meanwhile.
    InUse,
    /// All numbers of this kind of object are taken (`ENOMEM`).
    Full,
    /// There is no memory (`ENOMEM`).
    NoMemory,
    /// A table has to grow first (`ENOMEM`, if the host cannot or will not).
    ///
    /// The host allocates the chunk outside of the shard, hands it to
    /// [`Engine::add_chunk`](crate::Engine::add_chunk) and tries again.
    NeedChunk(NeedChunk),
}

impl Error {
    /// The error number, positive, as Linux has them.
    pub const fn errno(self) -> i32 {
        match self {
            Error::Full | Error::NoMemory | Error::NeedChunk(_) => 12,
            Error::Busy | Error::InUse => 16,
            Error::Invalid | Error::NotFound => 22,
            Error::NotSupported => 95,
        }
    }
}

/// The kinds of objects that have a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// User contexts.
    Contexts,
    /// Protection domains.
    Pds,
    /// Memory regions.
    Keys,
    /// Memory windows.
    Mws,
    /// Completion queues.
    Cqs,
    /// Queue pairs.
    Qps,
    /// Shared receive queues.
    Srqs,
    /// Address handles.
    Ahs,
    /// Multicast groups.
    Groups,
}

/// A table has no free slot and has to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedChunk(pub(crate) TableKind);

/// An object that the engine would not take, handed back with the reason.
#[derive(Debug)]
pub struct Refused<T> {
    /// Why the object was refused.
    pub error: Error,
    /// The object itself, unchanged.
    pub object: T,
}
