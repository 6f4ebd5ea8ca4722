// SPDX-License-Identifier: GPL-2.0

//! The registers in BAR0, as Documentation/nic.md of the driver specifies them. Nothing here does I/O.

use crate::config::VECTORS;
use crate::doorbells;

/// "FRUL", as bytes in memory.
pub const MAGIC: u32 = u32::from_le_bytes(*b"FRUL");

/// The version of the registers.
pub const VERSION: u32 = 1;

/// What the device can do: the memory check, and vectors raised by request.
pub const FEATURES: u32 = FEATURE_CHECK | FEATURE_RAISE;
const FEATURE_CHECK: u32 = 1 << 0;
const FEATURE_RAISE: u32 = 1 << 1;

const STATUS_READY: u32 = 1 << 0;
const STATUS_CHECKED: u32 = 1 << 1;

/// Offsets.
pub mod offset {
    #![allow(missing_docs)] // nic.md describes each.

    pub const MAGIC: u64 = 0x00;
    pub const VERSION: u64 = 0x04;
    pub const FEATURES: u64 = 0x08;
    pub const STATUS: u64 = 0x0c;
    pub const RESET: u64 = 0x10;
    pub const VECTORS: u64 = 0x14;
    pub const DOORBELL_AREAS: u64 = 0x18;
    pub const DOORBELL_STRIDE: u64 = 0x1c;
    pub const CHECK_ADDRESS: u64 = 0x20;
    pub const CHECK_NONCE: u64 = 0x28;
    pub const CHECK: u64 = 0x30;
    pub const RAISE: u64 = 0x34;
}

/// What came of the memory check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checked {
    /// It has not run since the reset.
    #[default]
    Never = 0,
    /// The device sees the memory that the driver sees.
    Shared = 1,
    /// The device sees other bytes than the driver has written.
    Differs = 2,
    /// The device cannot write the address.
    NoMemory = 3,
    /// The function is no bus master.
    NoMaster = 4,
}

/// What a write to a register asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing but the register.
    None,
    /// A reset of all but the configuration space.
    Reset,
    /// The memory check.
    Check {
        /// The guest's address of two words.
        address: u64,
        /// What the first word has to be.
        nonce: u64,
    },
    /// A vector is to be raised.
    Raise(u32),
}

/// What the registers keep.
#[derive(Clone, Debug, Default)]
pub struct Registers {
    address: u64,
    nonce: u64,
    checked: Checked,
}

impl Registers {
    /// Keeps what came of the memory check.
    pub fn set_checked(&mut self, checked: Checked) {
        self.checked = checked;
    }

    /// Copies bytes out. What is no register reads as zero, and an access of another size as all ones.
    pub fn read(&self, at: u64, into: &mut [u8]) {
        if !plain(at, into.len()) {
            into.fill(0xff);
            return;
        }
        for (at, chunk) in (at..).step_by(4).zip(into.chunks_exact_mut(4)) {
            chunk.copy_from_slice(&self.word(at).to_le_bytes());
        }
    }

    fn word(&self, at: u64) -> u32 {
        let low = |value: u64| (value & u64::from(u32::MAX)) as u32;
        match at {
            offset::MAGIC => MAGIC,
            offset::VERSION => VERSION,
            offset::FEATURES => FEATURES,
            offset::STATUS if self.checked == Checked::Shared => STATUS_READY | STATUS_CHECKED,
            offset::STATUS => STATUS_READY,
            offset::VECTORS => u32::from(VECTORS),
            offset::DOORBELL_AREAS => doorbells::AREAS,
            offset::DOORBELL_STRIDE => doorbells::STRIDE,
            0x20 => low(self.address),
            0x24 => low(self.address >> 32),
            0x28 => low(self.nonce),
            0x2c => low(self.nonce >> 32),
            offset::CHECK => self.checked as u32,
            _ => 0,
        }
    }

    /// Writes bytes; an access of a size that is none of a register's is ignored.
    pub fn write(&mut self, at: u64, from: &[u8]) -> Action {
        let mut action = Action::None;
        if !plain(at, from.len()) {
            return action;
        }
        for (at, chunk) in (at..).step_by(4).zip(from.chunks_exact(4)) {
            let value = chunk.try_into().map_or(0, u32::from_le_bytes);
            match self.write_word(at, value) {
                Action::None => (),
                asked => action = asked,
            }
        }
        action
    }

    fn write_word(&mut self, at: u64, value: u32) -> Action {
        match at {
            offset::RESET if value == 1 => return Action::Reset,
            0x20 => set_low(&mut self.address, value),
            0x24 => set_high(&mut self.address, value),
            0x28 => set_low(&mut self.nonce, value),
            0x2c => set_high(&mut self.nonce, value),
            offset::CHECK => {
                let (address, nonce) = (self.address, self.nonce);
                return Action::Check { address, nonce };
            }
            offset::RAISE => return Action::Raise(value),
            _ => (),
        }
        Action::None
    }
}

/// Whether an access has the size of a register or of two, and is aligned to it.
fn plain(at: u64, length: usize) -> bool {
    matches!(length, 4 | 8) && at.checked_rem(length as u64) == Some(0)
}

fn set_low(word: &mut u64, value: u32) {
    *word = (*word & !u64::from(u32::MAX)) | u64::from(value);
}

fn set_high(word: &mut u64, value: u32) {
    *word = (*word & u64::from(u32::MAX)) | (u64::from(value) << 32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(registers: &Registers, at: u64) -> u32 {
        let mut bytes = [0; 4];
        registers.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn constants() {
        let registers = Registers::default();
        let mut bytes = [0; 8];
        registers.read(0, &mut bytes);
        assert_eq!(&bytes, b"FRUL\x01\0\0\0");
        assert_eq!(word(&registers, offset::STATUS), 1);
        assert_eq!(
            word(&registers, offset::DOORBELL_AREAS) * word(&registers, offset::DOORBELL_STRIDE),
            1 << 20
        );
        for at in (0x38..4096).step_by(4) {
            assert_eq!(word(&registers, at), 0);
        }
    }

    #[test]
    fn sizes_of_accesses() {
        let mut registers = Registers::default();
        for (at, length) in [(0, 1), (0, 2), (2, 4), (4, 8), (0, 12), (0, 0), (0, 3)] {
            let mut bytes = vec![0; length];
            registers.read(at, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == 0xff));
        }
        assert_eq!(registers.write(offset::RESET, &[1]), Action::None);
        assert_eq!(registers.write(offset::RESET, &[1, 0, 0, 0]), Action::Reset);
        assert_eq!(registers.write(offset::RESET, &[2, 0, 0, 0]), Action::None);
    }

    #[test]
    fn address_and_nonce_in_halves_or_whole() {
        let mut registers = Registers::default();
        assert_eq!(registers.write(0x24, &2u32.to_le_bytes()), Action::None);
        assert_eq!(
            registers.write(0x20, &0x1000u32.to_le_bytes()),
            Action::None
        );
        assert_eq!(
            registers.write(0x28, &0x1122_3344_5566_7788u64.to_le_bytes()),
            Action::None
        );
        let action = Action::Check {
            address: 0x2_0000_1000,
            nonce: 0x1122_3344_5566_7788,
        };
        assert_eq!(registers.write(offset::CHECK, &[1, 0, 0, 0]), action);
        assert_eq!(
            registers.write(offset::RAISE, &[3, 0, 0, 0]),
            Action::Raise(3)
        );
        registers.set_checked(Checked::Shared);
        assert_eq!(word(&registers, offset::STATUS), 3);
        assert_eq!(word(&registers, offset::CHECK), 1);
    }
}
