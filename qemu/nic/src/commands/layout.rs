// SPDX-License-Identifier: GPL-2.0

//! Operands and answers, as all commands have them.

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::interface::Number;

/// The answer of a command.
pub(super) type Answer = Result<Vec<u8>, Errno>;

/// Operands of a kind, which has one size.
pub(super) fn read<T: FromBytes>(operands: &[u8]) -> Result<T, Errno> {
    T::read_from_bytes(operands).map_err(|_| Errno::INVAL)
}

/// Refuses operands where there are none.
pub(super) fn none(operands: &[u8]) -> Result<(), Errno> {
    operands.is_empty().then_some(()).ok_or(Errno::INVAL)
}

/// The object that a command names.
pub(super) fn number(operands: &[u8]) -> Result<u32, Errno> {
    let Number { number, reserved } = read(operands)?;
    zero(reserved.get())?;
    Ok(number.get())
}

/// Refuses a reserved field that is not zero.
pub(super) fn zero(reserved: u32) -> Result<(), Errno> {
    (reserved == 0).then_some(()).ok_or(Errno::INVAL)
}

/// The name of an object, as an answer.
pub(super) fn name(number: u32) -> Number {
    Number {
        number: number.into(),
        reserved: 0.into(),
    }
}

/// A structure, as an answer.
pub(super) fn answer(value: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    value.as_bytes().to_vec()
}

/// The answer of a command that has none.
pub(super) const NOTHING: Answer = Ok(Vec::new());

/// The error number of what the engine refuses.
pub(super) fn errno_of(refusal: ferrule_engine::Error) -> Errno {
    crate::device::errno(refusal)
}
