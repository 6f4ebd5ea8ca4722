// SPDX-License-Identifier: GPL-2.0

//! The PCI function of one guest: its regions, its interrupts, its reset.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use tracing::{info, warn};

use crate::commands;
use crate::config::{self, Config, Effect};
use crate::device::Device;
use crate::guest::Guest;
use crate::log::Lines;
use crate::memory::{Access, Memory};
use crate::protocol::{self, Range};
use crate::registers::{self, Action, Checked, Registers};
use crate::signal::Signal;
use crate::vectors::Vectors;

/// How many regions vfio has for a PCI function.
pub const REGIONS: u32 = 9;
/// How many kinds of interrupts vfio has for a PCI function.
pub const IRQS: u32 = 5;
/// Of these, the one of MSI-X.
pub const IRQ_MSIX: u32 = 2;

/// The regions that there are, by vfio's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    /// BAR0.
    Registers,
    /// BAR4; the client has the tables of MSI-X itself.
    Tables,
    /// The configuration space.
    Config,
}

impl Region {
    fn of(index: u32) -> Option<Self> {
        match index {
            0 => Some(Region::Registers),
            4 => Some(Region::Tables),
            7 => Some(Region::Config),
            _ => None,
        }
    }

    fn size(self) -> u64 {
        match self {
            Region::Registers => config::BAR0_SIZE,
            Region::Tables => config::BAR4_SIZE,
            Region::Config => config::SIZE as u64,
        }
    }
}

/// The adapter of one guest. It outlives the guest: the next one finds it as new.
#[derive(Debug)]
pub struct Adapter {
    name: String,
    config: Config,
    registers: Registers,
    mac: [u8; 6],
    guest: Guest,
    signal: Arc<Signal>,
    vectors: Vectors,
    lines: Lines,
}

impl Adapter {
    /// Makes the adapter of a port of the device. It belongs to the guest's network device of the
    /// address `mac`, all zeroes if to none; `name` is for the log.
    ///
    /// # Errors
    ///
    /// The device has no such port.
    pub fn new(device: &Arc<Device>, port: usize, name: &str, mac: [u8; 6]) -> io::Result<Self> {
        let signal = device.signal(port).ok_or(Errno::INVAL)?;
        Ok(Self {
            name: name.to_owned(),
            config: Config::default(),
            registers: Registers::new(mac),
            mac,
            guest: Guest::new(device, port)?,
            signal: Arc::clone(signal),
            vectors: Vectors::new(config::VECTORS),
            lines: Lines::default(),
        })
    }

    /// Writes a line about this guest to the log, unless there were many.
    pub fn note(&mut self, what: &str) {
        if self.lines.take() {
            info!("{}: {what}", self.name);
        }
    }

    /// Likewise, of what a person should look at.
    pub fn warn(&mut self, what: &str) {
        if self.lines.take() {
            warn!("{}: {what}", self.name);
        }
    }

    /// The guest's memory.
    pub fn memory(&self) -> &Memory {
        &self.guest.memory
    }

    /// A file descriptor that becomes readable when vectors are to be raised: then
    /// [`Adapter::raise`] is to be called.
    pub fn signal(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }

    /// Raises the vectors that wait for this thread.
    pub fn raise(&self) {
        let raised = self.signal.take();
        (0..u32::BITS)
            .filter(|vector| raised & 1u32.wrapping_shl(*vector) != 0)
            .for_each(|vector| self.raise_one(vector));
    }

    fn raise_one(&self, vector: u32) {
        self.guest.statistics.interrupts.add(1);
        self.vectors.raise(vector);
    }

    /// Unmaps memory that nobody uses any more, and counts what is left.
    fn sweep(&self) {
        self.guest.memory.sweep();
        let (_, bytes) = self.guest.memory.count();
        self.guest.statistics.memory.set(bytes);
    }

    /// Takes a range of guest memory.
    ///
    /// # Errors
    ///
    /// The range is refused.
    pub fn map(
        &mut self,
        range: Range,
        file: Option<OwnedFd>,
        offset: u64,
        writable: bool,
    ) -> Result<(), Errno> {
        let done = self.guest.memory.map(range, file, offset, writable);
        self.sweep();
        done.map_err(|refused| {
            let Range { address, size } = range;
            self.warn(&format!(
                "{size:#x} bytes of memory at {address:#x} are refused: {refused}"
            ));
            Errno::INVAL
        })
    }

    /// Gives a range of guest memory back: nobody reaches it afterwards.
    ///
    /// # Errors
    ///
    /// There is no such range.
    pub fn unmap(&mut self, range: Range) -> Result<(), Errno> {
        let Guest { device, memory, .. } = &self.guest;
        let done = device.command(|_, _| memory.unmap(range));
        self.sweep();
        done.map_err(|_| Errno::NOENT)
    }

    /// Gives all ranges back.
    pub fn unmap_all(&mut self) {
        let Guest { device, memory, .. } = &self.guest;
        device.command(|_, _| memory.clear());
        self.sweep();
    }

    /// Flags and size of a region. One that is not there has no bytes.
    ///
    /// # Errors
    ///
    /// There is no region of this number.
    pub fn region_info(&self, index: u32) -> Result<(u32, u64), Errno> {
        const READ: u32 = 1 << 0;
        const WRITE: u32 = 1 << 1;
        match Region::of(index) {
            None if index < REGIONS => Ok((0, 0)),
            None => Err(Errno::INVAL),
            Some(region) => Ok((READ | WRITE, region.size())),
        }
    }

    /// Flags and number of vectors of a kind of interrupts.
    ///
    /// # Errors
    ///
    /// There is no kind of this number.
    pub fn irq_info(&self, index: u32) -> Result<(u32, u32), Errno> {
        const EVENTFD: u32 = 1 << 0;
        match index {
            IRQ_MSIX => Ok((EVENTFD, u32::from(config::VECTORS))),
            _ if index < IRQS => Ok((0, 0)),
            _ => Err(Errno::INVAL),
        }
    }

    /// Sets or raises vectors.
    ///
    /// # Errors
    ///
    /// There are no such vectors, or the files are not theirs.
    pub fn set_irqs(
        &mut self,
        index: u32,
        what: protocol::Vectors,
        (start, count): (u32, u32),
        files: Vec<OwnedFd>,
    ) -> Result<(), Errno> {
        if index != IRQ_MSIX {
            return Err(Errno::INVAL);
        }
        match what {
            protocol::Vectors::Files => self.vectors.assign(start, count, files),
            protocol::Vectors::Raise if count == 0 => {
                self.vectors.clear();
                Ok(())
            }
            protocol::Vectors::Raise => self.vectors.raise_all(start, count),
        }
    }

    /// Reads bytes of a region.
    ///
    /// # Errors
    ///
    /// Not all of them are in a region.
    pub fn read(&self, index: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        let region = within(index, offset, into.len())?;
        let done = match region {
            Region::Registers => {
                self.guest.statistics.accesses.add(1);
                self.registers.read(offset, into);
                true
            }
            Region::Tables => {
                into.fill(0);
                true
            }
            Region::Config => self.config.read(offset, into),
        };
        done.then_some(()).ok_or(Errno::INVAL)
    }

    /// Writes bytes of a region.
    ///
    /// # Errors
    ///
    /// Not all of them are in a region.
    pub fn write(&mut self, index: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        let region = within(index, offset, from.len())?;
        let is_register = region == Region::Registers;
        self.guest.statistics.accesses.add(is_register.into());
        match region {
            Region::Registers => {
                for (at, value) in registers::words(offset, from) {
                    let action = self.registers.write(at, value);
                    self.perform(action);
                }
            }
            Region::Tables => (),
            Region::Config => match self.config.write(offset, from) {
                Some(Effect::None) => (),
                Some(Effect::FunctionReset) => self.reset(),
                Some(Effect::MasterCleared) => self.reset_under_driver(),
                None => return Err(Errno::INVAL),
            },
        }
        Ok(())
    }

    /// Does what a write to a register asks for.
    fn perform(&mut self, action: Action) {
        match action {
            Action::None => (),
            Action::Reset => self.reset_device(),
            Action::Check { address, nonce } => self.check(address, nonce),
            Action::Raise(vector) => self.raise_one(vector),
            Action::Command { address, tag } => self.command(address, tag),
            Action::Kick(context) => {
                self.guest.statistics.kicks.add(1);
                if self.config.bus_master() {
                    self.guest.kick(context);
                }
                self.raise();
            }
        }
    }

    /// Executes a command, unless the function may not reach memory, or it is not known whether
    /// that is shared.
    fn command(&mut self, address: u64, tag: u32) {
        if !self.config.bus_master() {
            return;
        }
        let refused = (!self.registers.is_checked()).then_some(Errno::IO);
        if commands::execute(&mut self.guest, address, tag, refused) {
            self.registers.set_answered(tag);
        }
        // Objects may be gone that have pinned memory.
        self.sweep();
        self.raise();
    }

    /// The memory check: the word at `address` is the nonce if the device sees the memory that the
    /// driver sees; then the device writes the complement behind it, for the driver to see.
    fn check(&mut self, address: u64, nonce: u64) {
        let checked = if self.config.bus_master() {
            self.compare(address, nonce)
        } else {
            Checked::NoMaster
        };
        self.registers.set_checked(checked);
        if checked == Checked::Differs {
            self.warn("the guest's memory is not shared with this process: its memory backend needs share=on");
        }
    }

    fn compare(&self, address: u64, nonce: u64) -> Checked {
        let Ok(pinned) = self.guest.memory.pin(address, 16, Access::Write) else {
            return Checked::NoMemory;
        };
        let mut word = [0; 8];
        if !pinned.read(0, &mut word) {
            return Checked::NoMemory;
        }
        if u64::from_le_bytes(word) != nonce {
            return Checked::Differs;
        }
        match pinned.write(8, &(!nonce).to_le_bytes()) {
            true => Checked::Shared,
            false => Checked::NoMemory,
        }
    }

    /// A function level reset. Memory and eventfds are the client's, and stay.
    pub fn reset(&mut self) {
        self.config = Config::default();
        self.reset_under_driver();
    }

    /// Resets all but the configuration space by no deed of the driver's: by a function level
    /// reset, and when bus mastering is taken away. The function sends no memory requests without
    /// it (PCI Express 4.0, 7.5.1.1.3), and its objects need memory. Linux takes it away of a
    /// function without a driver's shutdown before it starts another kernel (kexec), to which all
    /// memory belongs then.
    ///
    /// A driver that knows of it lets go of the function first, so a line of the log tells of the
    /// others.
    fn reset_under_driver(&mut self) {
        if self.registers.is_checked() {
            self.note("the function was reset under its driver, by the guest or by QEMU");
        }
        self.reset_device();
    }

    /// Resets all but the configuration space: all objects are gone, and nothing is underway in the
    /// guest's memory afterwards.
    fn reset_device(&mut self) {
        self.registers = Registers::new(self.mac);
        self.guest.reset();
        self.sweep();
    }

    /// A client is there.
    pub fn connect(&mut self) {
        self.guest.statistics.connected.set(1);
    }

    /// The client is gone: gives back all that was its own.
    pub fn disconnect(&mut self) {
        self.guest.statistics.connected.set(0);
        self.vectors.clear();
        // Queue pairs go before the memory: peers are to find that nobody answers, not that keys
        // open nothing.
        self.config = Config::default();
        self.reset_device();
        self.unmap_all();
    }
}

fn within(index: u32, offset: u64, length: usize) -> Result<Region, Errno> {
    let region = Region::of(index).ok_or(Errno::INVAL)?;
    let end = offset.checked_add(length as u64).ok_or(Errno::INVAL)?;
    (end <= region.size()).then_some(region).ok_or(Errno::INVAL)
}
