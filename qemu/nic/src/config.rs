// SPDX-License-Identifier: GPL-2.0

//! The configuration space of the function, as Documentation/nic.md of the driver specifies it.
//!
//! PCI Local Bus Specification 3.0, chapter 6; PCI Express Base Specification 4.0, chapter 7.

use crate::interface::{id, VERSION_VALUE};

/// Bytes of the space, the extended part among them.
pub const SIZE: usize = 4096;

/// Bytes of BAR0, the registers.
pub const BAR0_SIZE: u64 = 4096;
/// Bytes of BAR4, the tables of MSI-X.
pub const BAR4_SIZE: u64 = 4096;

/// How many vectors MSI-X has.
pub const VECTORS: u16 = 32;

/// The revision: the version of the registers.
pub const REVISION: u8 = VERSION_VALUE as u8;
/// Network controller, InfiniBand.
pub const CLASS: u32 = 0x02_07_00;

const COMMAND: usize = 0x04;
const COMMAND_MASTER: u16 = 1 << 2;

/// The capability of PCI Express.
const EXPRESS: usize = 0x40;
const DEVICE_CONTROL: usize = EXPRESS + 8;
const DEVICE_CONTROL_FLR: u16 = 1 << 15;

/// The capability of MSI-X.
const MSIX: usize = 0x80;
/// Where the pending bits lie in BAR4.
const PENDING: u32 = 0x800;
/// BAR4 holds both tables.
const MSIX_BAR: u32 = 4;

/// 16 GT/s by 16 lanes.
const LINK: u16 = (16 << 4) | 4;

/// The effect of a write to the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing but the bytes.
    None,
    /// A function level reset.
    FunctionReset,
    /// The function may not reach memory any more.
    MasterCleared,
}

/// The bytes of the space, and which bits of them a write changes.
#[derive(Clone, Debug)]
pub struct Config {
    bytes: [u8; SIZE],
    writable: [u8; SIZE],
}

impl Default for Config {
    fn default() -> Self {
        let mut config = Self {
            bytes: [0; SIZE],
            writable: [0; SIZE],
        };
        config.define();
        config
    }
}

impl Config {
    fn define(&mut self) {
        self.u16(0x00, id::VENDOR, 0);
        self.u16(0x02, id::DEVICE, 0);
        // Memory space, bus master, SERR, and INTx off, which there is none of.
        self.u16(COMMAND, 0, 0x0506);
        self.u16(0x06, 0x0010, 0);
        self.u32(0x08, (CLASS << 8) | u32::from(REVISION), 0);
        self.u32(0x0c, 0, 0xff);
        self.bar(0x10, BAR0_SIZE, 0x0);
        self.bar(0x20, BAR4_SIZE, 0x0);
        self.u16(0x2c, id::SUBSYSTEM_VENDOR, 0);
        self.u16(0x2e, id::SUBSYSTEM, 0);
        self.u32(0x34, EXPRESS as u32, 0);
        self.u32(0x3c, 0, 0xff);

        // Version 2, an endpoint; MSI-X follows.
        self.u32(EXPRESS, 0x10 | ((MSIX as u32) << 8) | (2 << 16), 0);
        // Payloads of 256 bytes, role-based error reporting, function level reset.
        self.u32(EXPRESS + 0x04, 1 | (1 << 15) | (1 << 28), 0);
        self.u16(DEVICE_CONTROL, 0x2810, 0x7fff);
        self.u32(EXPRESS + 0x0c, u32::from(LINK), 0);
        self.u16(EXPRESS + 0x10, 0, 0x01c0);
        self.u16(EXPRESS + 0x12, LINK, 0);
        // Each speed up to that of the link.
        self.u32(EXPRESS + 0x2c, 0x1e, 0);
        self.u16(EXPRESS + 0x30, LINK & 0xf, 0);

        self.u16(MSIX, 0x11, 0);
        self.u16(MSIX + 2, VECTORS.saturating_sub(1), 0xc000);
        self.u32(MSIX + 4, MSIX_BAR, 0);
        self.u32(MSIX + 8, PENDING | MSIX_BAR, 0);
    }

    fn set(&mut self, at: usize, value: &[u8], writable: &[u8]) {
        let bytes = self.bytes.iter_mut().zip(&mut self.writable).skip(at);
        for ((byte, mask), (value, writable)) in bytes.zip(value.iter().zip(writable)) {
            *byte = *value;
            *mask = *writable;
        }
    }

    fn u16(&mut self, at: usize, value: u16, writable: u16) {
        self.set(at, &value.to_le_bytes(), &writable.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32, writable: u32) {
        self.set(at, &value.to_le_bytes(), &writable.to_le_bytes());
    }

    /// The bits below the size read as zero, which is how a BAR tells its size (6.2.5.1).
    fn bar(&mut self, at: usize, size: u64, flags: u32) {
        let mask = u32::try_from(size).map_or(0, |size| !size.wrapping_sub(1));
        self.u32(at, flags, mask);
    }

    /// Copies bytes out; false unless all of them are in the space.
    #[must_use]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let from = usize::try_from(offset)
            .ok()
            .and_then(|at| self.bytes.get(at..)?.get(..into.len()));
        from.map(|from| into.copy_from_slice(from)).is_some()
    }

    /// Writes what is writable; none unless all bytes are in the space.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Option<Effect> {
        let at = usize::try_from(offset).ok()?;
        let end = at.checked_add(from.len()).filter(|end| *end <= SIZE)?;
        let was_master = self.bus_master();
        let bytes = self.bytes.iter_mut().zip(&self.writable).skip(at);
        for ((byte, mask), value) in bytes.zip(from) {
            *byte = (*byte & !mask) | (value & mask);
        }
        // The bit itself reads as zero, and its byte is written or it is not.
        let flr = DEVICE_CONTROL.saturating_add(1);
        let asked = (at..end)
            .contains(&flr)
            .then(|| from.get(flr.saturating_sub(at)));
        let [_, bit] = DEVICE_CONTROL_FLR.to_le_bytes();
        if asked.flatten().is_some_and(|byte| byte & bit != 0) {
            return Some(Effect::FunctionReset);
        }
        match was_master && !self.bus_master() {
            true => Some(Effect::MasterCleared),
            false => Some(Effect::None),
        }
    }

    /// Whether the function may reach memory.
    pub fn bus_master(&self) -> bool {
        let mut command = [0; 2];
        self.read(COMMAND as u64, &mut command) && u16::from_le_bytes(command) & COMMAND_MASTER != 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn u32_at(config: &Config, at: u64) -> u32 {
        let mut bytes = [0; 4];
        assert!(config.read(at, &mut bytes));
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn identity() {
        let config = Config::default();
        assert_eq!(u32_at(&config, 0), 0x10f1_1af4);
        assert_eq!(u32_at(&config, 8) >> 8, 0x020700);
        assert_eq!(u32_at(&config, 0x2c), 0x4645_1af4);
        assert_eq!(u32_at(&config, 0x100), 0, "no extended capability");
    }

    #[test]
    fn capabilities_form_a_list() {
        let config = Config::default();
        let mut at = u64::from(u32_at(&config, 0x34) & 0xff);
        let mut found = Vec::new();
        while at != 0 {
            let head = u32_at(&config, at);
            found.push(head & 0xff);
            at = u64::from((head >> 8) & 0xff);
        }
        assert_eq!(found, [0x10, 0x11]);
        assert_eq!(u32_at(&config, 0x80) >> 16, 31);
        assert_eq!(u32_at(&config, 0x52) & 0xffff, 0x0104);
    }

    #[test]
    fn bars_tell_their_sizes() {
        let mut config = Config::default();
        for (at, size, flags) in [(0x10, BAR0_SIZE, 0), (0x20, BAR4_SIZE, 0)] {
            assert_eq!(config.write(at, &[0xff; 4]), Some(Effect::None));
            let read = u32_at(&config, at);
            assert_eq!(u64::from(!(read & !0xf)) + 1, size);
            assert_eq!(read & 0xf, flags);
        }
        for at in [0x14, 0x18, 0x1c, 0x24, 0x30] {
            assert_eq!(config.write(at, &[0xff; 4]), Some(Effect::None));
            assert_eq!(u32_at(&config, at), 0);
        }
    }

    #[test]
    fn reset_is_asked_for_by_its_bit() {
        let mut config = Config::default();
        let at = DEVICE_CONTROL as u64;
        assert_eq!(config.write(at, &[0, 0x80]), Some(Effect::FunctionReset));
        assert_eq!(config.write(at + 1, &[0x80]), Some(Effect::FunctionReset));
        assert_eq!(
            config.write(at - 4, &[0, 0, 0, 0, 0, 0x80, 0, 0]),
            Some(Effect::FunctionReset)
        );
        assert_eq!(config.write(at, &[0xff, 0x7f]), Some(Effect::None));
        assert_eq!(config.write(at, &[0x80]), Some(Effect::None));
        assert_eq!(u32_at(&config, at) & 0x8000, 0);
    }

    #[test]
    fn bus_master_by_its_bit() {
        let mut config = Config::default();
        assert!(!config.bus_master());
        assert_eq!(config.write(4, &[0, 0]), Some(Effect::None));
        assert_eq!(config.write(4, &[4, 0]), Some(Effect::None));
        assert!(config.bus_master());
        // The bit is in the first byte.
        assert_eq!(config.write(5, &[1]), Some(Effect::None));
        assert_eq!(config.write(4, &[2, 0]), Some(Effect::MasterCleared));
        assert!(!config.bus_master());
    }

    proptest! {
        /// No write changes a bit that is not writable, and none reaches beyond the space.
        #[test]
        fn only_what_is_writable(writes in prop::collection::vec((0u64..5000, prop::collection::vec(any::<u8>(), 0..64)), 0..30)) {
            let fresh = Config::default();
            let mut config = Config::default();
            for (at, bytes) in writes {
                let inside = at + bytes.len() as u64 <= SIZE as u64;
                prop_assert_eq!(config.write(at, &bytes).is_some(), inside);
                prop_assert_eq!(config.read(at, &mut vec![0; bytes.len()]), inside);
            }
            for at in 0..SIZE {
                prop_assert_eq!((config.bytes[at] ^ fresh.bytes[at]) & !fresh.writable[at], 0);
            }
        }
    }
}
