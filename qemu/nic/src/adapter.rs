// SPDX-License-Identifier: GPL-2.0

//! The PCI function of one guest: its regions, its interrupts, its reset.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use tracing::{info, warn};

use crate::config::{self, Config, Effect};
use crate::doorbells::Doorbells;
use crate::log::Lines;
use crate::memory::{Access, Memory};
use crate::protocol::{self, Range};
use crate::registers::{Action, Checked, Registers};
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
    /// BAR2.
    Doorbells,
    /// BAR4; the client has the tables of MSI-X itself.
    Tables,
    /// The configuration space.
    Config,
}

impl Region {
    fn of(index: u32) -> Option<Self> {
        match index {
            0 => Some(Region::Registers),
            2 => Some(Region::Doorbells),
            4 => Some(Region::Tables),
            7 => Some(Region::Config),
            _ => None,
        }
    }

    fn size(self) -> u64 {
        match self {
            Region::Registers => config::BAR0_SIZE,
            Region::Doorbells => config::BAR2_SIZE,
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
    doorbells: Doorbells,
    memory: Memory,
    vectors: Vectors,
    lines: Lines,
}

impl Adapter {
    /// Makes an adapter; `name` is for the log.
    ///
    /// # Errors
    ///
    /// There is no memory for its doorbell pages.
    pub fn new(name: &str) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            config: Config::default(),
            registers: Registers::default(),
            doorbells: Doorbells::new()?,
            memory: Memory::default(),
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
        &self.memory
    }

    /// The doorbell pages.
    pub fn doorbells(&self) -> &Doorbells {
        &self.doorbells
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
        let done = self.memory.map(range, file, offset, writable);
        done.map_err(|refused| {
            let Range { address, size } = range;
            self.warn(&format!(
                "{size:#x} bytes of memory at {address:#x} are refused: {refused}"
            ));
            Errno::INVAL
        })
    }

    /// Flags, size, and the file of a region that can be mapped. A region that is not there has no bytes.
    ///
    /// # Errors
    ///
    /// There is no region of this number, or no file descriptor.
    pub fn region_info(&self, index: u32) -> Result<(u32, u64, Option<OwnedFd>), Errno> {
        const READ: u32 = 1 << 0;
        const WRITE: u32 = 1 << 1;
        const MMAP: u32 = 1 << 2;
        match Region::of(index) {
            None if index < REGIONS => Ok((0, 0, None)),
            None => Err(Errno::INVAL),
            Some(region @ Region::Doorbells) => {
                let file = self.doorbells.file().map_err(|_| Errno::MFILE)?;
                Ok((READ | WRITE | MMAP, region.size(), Some(file)))
            }
            Some(region) => Ok((READ | WRITE, region.size(), None)),
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
                self.registers.read(offset, into);
                true
            }
            Region::Doorbells => self.doorbells.mapping().read(offset, into),
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
        match region {
            Region::Registers => match self.registers.write(offset, from) {
                Action::None => (),
                Action::Reset => self.reset_device(),
                Action::Check { address, nonce } => self.check(address, nonce),
                Action::Raise(vector) => self.vectors.raise(vector),
            },
            Region::Doorbells => {
                let done = self.doorbells.mapping().write(offset, from);
                return done.then_some(()).ok_or(Errno::INVAL);
            }
            Region::Tables => (),
            Region::Config => match self.config.write(offset, from) {
                Some(Effect::None) => (),
                Some(Effect::FunctionReset) => self.reset(),
                None => return Err(Errno::INVAL),
            },
        }
        Ok(())
    }

    /// The memory check: the word at `address` is the nonce if the device sees the memory that the driver
    /// sees; then the device writes the complement behind it, for the driver to see.
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
        let Ok(held) = self.memory.hold(address, 16, Access::Write) else {
            return Checked::NoMemory;
        };
        let mut word = [0; 8];
        if !held.read(0, &mut word) {
            return Checked::NoMemory;
        }
        if u64::from_le_bytes(word) != nonce {
            return Checked::Differs;
        }
        match held.write(8, &(!nonce).to_le_bytes()) {
            true => Checked::Shared,
            false => Checked::NoMemory,
        }
    }

    /// A function level reset. Memory and eventfds are the client's, and stay.
    pub fn reset(&mut self) {
        self.config = Config::default();
        self.reset_device();
    }

    /// Resets all but the configuration space; nothing is underway in the guest's memory afterwards.
    fn reset_device(&mut self) {
        self.registers = Registers::default();
        self.memory.quiesce();
        if let Err(error) = self.doorbells.clear() {
            self.warn(&format!("the doorbell pages could not be cleared: {error}"));
        }
    }

    /// The client is gone: gives back all that was its own.
    pub fn disconnect(&mut self) {
        self.vectors.clear();
        self.memory.clear();
        self.reset();
    }
}

fn within(index: u32, offset: u64, length: usize) -> Result<Region, Errno> {
    let region = Region::of(index).ok_or(Errno::INVAL)?;
    let end = offset.checked_add(length as u64).ok_or(Errno::INVAL)?;
    (end <= region.size()).then_some(region).ok_or(Errno::INVAL)
}
