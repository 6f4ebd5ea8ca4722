// SPDX-License-Identifier: GPL-2.0

//! The registers in BAR0, as Documentation/nic.md of the driver specifies them. Nothing here does
//! I/O.

use crate::config::VECTORS;
use crate::interface::{check, feature, register, status, MAGIC_VALUE, VERSION_VALUE};

/// The features of the device.
const FEATURES: u32 = feature::CHECK
    | feature::RAISE
    | feature::COMMANDS
    | feature::FAST
    | feature::XRC
    | feature::KICK_ONCE;

/// The second halves of registers of 8 bytes.
const CHECK_ADDRESS_HIGH: usize = register::CHECK_ADDRESS + 4;
/// See [`CHECK_ADDRESS_HIGH`].
const CHECK_NONCE_HIGH: usize = register::CHECK_NONCE + 4;
/// See [`CHECK_ADDRESS_HIGH`].
const COMMAND_ADDRESS_HIGH: usize = register::COMMAND_ADDRESS + 4;

/// The result of the memory check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checked {
    /// It has not run since the reset.
    #[default]
    Never = check::NEVER as isize,
    /// The device sees the memory that the driver sees.
    Shared = check::SHARED as isize,
    /// The device sees other bytes than the driver has written.
    Differs = check::DIFFERS as isize,
    /// The device cannot write the address.
    NoMemory = check::NO_MEMORY as isize,
    /// The function is no bus master.
    NoMaster = check::NO_MASTER as isize,
}

/// The effect of a write to a register.
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
        /// The value that the first word must have.
        nonce: u64,
    },
    /// A vector is to be raised.
    Raise(u32),
    /// A command is to be executed.
    Command {
        /// The guest's address of the command area.
        address: u64,
        /// The command's tag, which is not 0.
        tag: u32,
    },
    /// A context is to be served.
    Kick(u32),
}

/// The state behind the registers.
#[derive(Clone, Debug, Default)]
pub struct Registers {
    mac: [u8; 6],
    check_address: u64,
    nonce: u64,
    checked: Checked,
    command_address: u64,
    /// The tag of the command that was answered last.
    answered: u32,
}

impl Registers {
    /// As after a reset, of the function that belongs to the network device of this address; all
    /// zeroes: to none.
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            ..Self::default()
        }
    }

    /// Whether the last memory check found the memory shared.
    pub fn is_checked(&self) -> bool {
        self.checked == Checked::Shared
    }

    /// Keeps the tag of the command that was answered.
    pub fn set_answered(&mut self, tag: u32) {
        self.answered = tag;
    }

    /// Keeps the result of the memory check.
    pub fn set_checked(&mut self, checked: Checked) {
        self.checked = checked;
    }

    /// Copies bytes out. Bytes that are no register read as zero, and an access of another size as
    /// all ones.
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
        let high = |value: u64| low(value.wrapping_shr(32));
        let [a, b, c, d, e, f] = self.mac;
        match usize::try_from(at).unwrap_or(usize::MAX) {
            register::MAGIC => MAGIC_VALUE,
            register::VERSION => VERSION_VALUE,
            register::FEATURES => FEATURES,
            register::STATUS if self.is_checked() => status::READY | status::CHECKED,
            register::STATUS => status::READY,
            register::VECTORS => u32::from(VECTORS),
            register::MAC_LOW => u32::from_le_bytes([a, b, c, d]),
            register::MAC_HIGH => u32::from_le_bytes([e, f, 0, 0]),
            register::CHECK_ADDRESS => low(self.check_address),
            CHECK_ADDRESS_HIGH => high(self.check_address),
            register::CHECK_NONCE => low(self.nonce),
            CHECK_NONCE_HIGH => high(self.nonce),
            register::CHECK => self.checked as u32,
            register::COMMAND_ADDRESS => low(self.command_address),
            COMMAND_ADDRESS_HIGH => high(self.command_address),
            register::COMMAND => self.answered,
            _ => 0,
        }
    }

    /// Writes a register, or half of one of 8 bytes.
    pub fn write(&mut self, at: u64, value: u32) -> Action {
        match usize::try_from(at).unwrap_or(usize::MAX) {
            register::RESET if value == 1 => return Action::Reset,
            register::CHECK_ADDRESS => set_low(&mut self.check_address, value),
            CHECK_ADDRESS_HIGH => set_high(&mut self.check_address, value),
            register::CHECK_NONCE => set_low(&mut self.nonce, value),
            CHECK_NONCE_HIGH => set_high(&mut self.nonce, value),
            register::CHECK => {
                let (address, nonce) = (self.check_address, self.nonce);
                return Action::Check { address, nonce };
            }
            register::RAISE => return Action::Raise(value),
            register::COMMAND_ADDRESS => set_low(&mut self.command_address, value),
            COMMAND_ADDRESS_HIGH => set_high(&mut self.command_address, value),
            register::COMMAND if value != 0 => {
                let (address, tag) = (self.command_address, value);
                return Action::Command { address, tag };
            }
            register::KICK => return Action::Kick(value),
            _ => (),
        }
        Action::None
    }
}

/// The registers that an access writes, in order, with their values; none if its size is none of a
/// register's or of two.
pub fn words(at: u64, from: &[u8]) -> impl Iterator<Item = (u64, u32)> + '_ {
    let from = if plain(at, from.len()) { from } else { &[] };
    let value = |chunk: &[u8]| chunk.try_into().map_or(0, u32::from_le_bytes);
    (at..).step_by(4).zip(from.chunks_exact(4).map(value))
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
    use crate::interface::register::*;

    fn word(registers: &Registers, at: usize) -> u32 {
        let mut bytes = [0; 4];
        registers.read(at as u64, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn constants() {
        let registers = Registers::default();
        let mut bytes = [0; 8];
        registers.read(0, &mut bytes);
        assert_eq!(&bytes, b"FRUL\x04\0\0\0");
        assert_eq!(word(&registers, STATUS), 1);
        let registers = Registers::new([0x52, 0x54, 0, 1, 2, 0xff]);
        assert_eq!(word(&registers, MAC_LOW), 0x0100_5452);
        assert_eq!(word(&registers, MAC_HIGH), 0xff02);
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
        assert_eq!(registers.write(RESET as u64, 1), Action::Reset);
        assert_eq!(registers.write(RESET as u64, 2), Action::None);
        let written = |at, from| words(at, from).collect::<Vec<_>>();
        assert_eq!(written(4, &[1]), []);
        assert_eq!(written(4, &[1, 0, 0, 0]), [(4, 1)]);
        assert_eq!(written(4, &[0; 8]), []);
        assert_eq!(written(8, &[1, 0, 0, 0, 2, 0, 0, 0]), [(8, 1), (12, 2)]);
    }

    #[test]
    fn address_and_nonce_in_halves_or_whole() {
        let mut registers = Registers::default();
        assert_eq!(registers.write(0x24, 2), Action::None);
        assert_eq!(registers.write(0x20, 0x1000), Action::None);
        for (at, value) in words(0x28, &0x1122_3344_5566_7788u64.to_le_bytes()) {
            assert_eq!(registers.write(at, value), Action::None);
        }
        let action = Action::Check {
            address: 0x2_0000_1000,
            nonce: 0x1122_3344_5566_7788,
        };
        assert_eq!(registers.write(CHECK as u64, 1), action);
        assert_eq!(registers.write(RAISE as u64, 3), Action::Raise(3));
        registers.set_checked(Checked::Shared);
        assert_eq!(word(&registers, STATUS), 3);
        assert_eq!(word(&registers, CHECK), 1);
    }
}
