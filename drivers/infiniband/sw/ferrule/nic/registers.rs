// SPDX-License-Identifier: GPL-2.0

//! The registers of the function.

use kernel::{
    device::Bound,
    pci,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};
use kernel_ext::pci::Bar;

use super::interface::{
    feature,
    register,
    status,
    MAGIC_VALUE,
    VERSION_VALUE, //
};

/// The BAR that they are in.
const BAR: u32 = 0;
/// The bytes of it that are used.
const BAR_LEN: usize = 0x50;

/// Reads of a function that has been taken away. No register that is read here has this value.
const ABSENT: u32 = u32::MAX;

/// The features that the driver needs of a function.
const NEEDED: u32 =
    feature::CHECK | feature::COMMANDS | feature::FAST | feature::XRC | feature::KICK_ONCE;

/// The registers. Each access traps.
pub(super) struct Registers {
    bar: Bar,
    /// The function has lost the state that the driver gave it, or does not answer. It stays so.
    gone: Atomic<bool>,
    /// A reset has been answered since: the function has no objects, and uses no memory.
    is_reset: Atomic<bool>,
}

impl Registers {
    /// Maps the registers of a function, and resets all that it has.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it is no function that this driver knows, is not ready, or does not answer;
    /// those of mapping.
    pub(super) fn map(function: &pci::Device<Bound>) -> Result<Self> {
        let registers = Registers {
            bar: Bar::map(function, BAR, BAR_LEN, c"ferrule")?,
            gone: Atomic::new(false),
            is_reset: Atomic::new(false),
        };
        let Ok(magic) = registers.read(register::MAGIC) else {
            dev_err!(function, "it does not answer\n");
            return Err(ENODEV);
        };
        let version = registers.read(register::VERSION)?;
        if magic != MAGIC_VALUE || version != VERSION_VALUE {
            dev_err!(
                function,
                "magic {magic:#x}, version {version}: this driver knows version {VERSION_VALUE}\n"
            );
            return Err(ENODEV);
        }
        // Another driver may have left something.
        registers.reset();
        let features = registers.read(register::FEATURES)?;
        let status = registers.read(register::STATUS)?;
        let lacking = NEEDED & !features;
        if lacking != 0 {
            dev_err!(
                function,
                "features {features:#x}: it lacks {lacking:#x}, which this driver needs\n"
            );
            return Err(ENODEV);
        }
        if status & status::READY == 0 {
            dev_err!(function, "status {status:#x}: it is not ready\n");
            return Err(ENODEV);
        }
        Ok(registers)
    }

    /// Reads a register. Any context.
    ///
    /// # Errors
    ///
    /// `EIO` if the function has been taken away.
    pub(super) fn read(&self, register: usize) -> Result<u32> {
        match self.bar.read32(register) {
            Ok(ABSENT) | Err(_) => {
                self.gone.store(true, Relaxed);
                Err(EIO)
            }
            Ok(value) => Ok(value),
        }
    }

    /// Writes a register, after all earlier stores to memory. Any context. It does nothing if the
    /// function has been taken away.
    pub(super) fn write(&self, register: usize, value: u32) {
        let _ = self.bar.write32(register, value);
    }

    /// Writes a register that is in two halves.
    pub(super) fn write_halves(&self, register: usize, value: u64) {
        self.write(register, value as u32);
        self.write(register + size_of::<u32>(), (value >> 32) as u32);
    }

    /// Resets all but the configuration space, and returns whether the function has done so: then
    /// it has no objects, and uses no memory. Any context.
    pub(super) fn reset(&self) -> bool {
        self.write(register::RESET, 1);
        // An answer comes after the write before it has been done. Where there is no function, some
        // machines read zero.
        let done = self
            .read(register::STATUS)
            .is_ok_and(|status| status & (status::READY | status::CHECKED) == status::READY);
        if done && self.are_gone() {
            self.is_reset.store(true, Relaxed);
        }
        done
    }

    /// Whether the function still has the state that the driver gave it. Reads a register. Any
    /// context.
    ///
    /// Whoever resets it takes away that the memory was found to be shared, which the driver has
    /// seen before anybody could use the function.
    pub(super) fn look(&self) -> bool {
        if let Ok(status) = self.read(register::STATUS) {
            if status & status::CHECKED == 0 {
                self.gone.store(true, Relaxed);
            }
        }
        !self.are_gone()
    }

    /// Whether the function has been found to be gone: taken away, reset by others, or silent. Any
    /// context.
    pub(super) fn are_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Whether a function that is gone is known to use no memory. Any context.
    ///
    /// Reads of all ones do not tell: QEMU answers so as well for a process that lives and is late.
    /// Only a reset that is answered does.
    pub(super) fn use_no_memory(&self) -> bool {
        self.is_reset.load(Relaxed) || self.reset()
    }

    /// Gives up memory that a request has named in vain: drops it, or leaks it if the function is
    /// gone and may use it still.
    pub(super) fn release<T>(&self, memory: T) {
        if self.are_gone() && !self.use_no_memory() {
            core::mem::forget(memory);
        }
    }

    /// The MAC address of the network device that the function belongs to, if it has one.
    pub(super) fn mac(&self) -> Result<Option<[u8; 6]>> {
        let [a, b, c, d] = self.read(register::MAC_LOW)?.to_le_bytes();
        let [e, f, ..] = self.read(register::MAC_HIGH)?.to_le_bytes();
        let mac = [a, b, c, d, e, f];
        Ok((mac != [0; 6]).then_some(mac))
    }
}
