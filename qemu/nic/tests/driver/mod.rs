// SPDX-License-Identifier: GPL-2.0

//! A guest with a driver: memory in a file that the function shares, commands, and events.

mod event_queue;
pub mod queues;

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferrule_engine::abi;
use ferrule_nic::adapter::Adapter;
use ferrule_nic::device::Device;
use ferrule_nic::interface::*;
use ferrule_nic::mapping::{sealed, Mapping};
use ferrule_nic::worker::Worker;
use rustix::event::{eventfd, EventfdFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::client::{words, Client, SET_IRQS};

pub const PAGE: u64 = 4096;

/// Bytes of the guest's memory, which lies in two ranges.
const MEMORY: u64 = 64 << 20;
/// Where its second half begins, as the guest sees it.
const HIGH: u64 = 4 << 30;

/// A process with so many guests.
pub fn guests<const N: usize>() -> (Worker, [Guest; N]) {
    let device = Device::new(N).unwrap();
    let worker = Worker::new(&device).unwrap();
    let mut port = 0..;
    let guests = [(); N].map(|()| Guest::new(&device, port.next().unwrap()));
    (worker, guests)
}

/// A guest, and all of its memory.
pub struct Guest {
    pub client: Client,
    pub memory: Memory,
    pub vectors: Vec<OwnedFd>,
    command: u64,
    tag: u32,
    pub gid: [u8; 16],
}

/// The memory of a guest, which gives out pages.
pub struct Memory {
    pub bytes: Arc<Mapping>,
    pub file: OwnedFd,
    next: Cell<u64>,
    /// Where pages of canaries are in the file.
    canaries: RefCell<Vec<u64>>,
}

/// Pages of a guest's memory, one after the other, with a page of canaries before and behind each
/// piece.
#[derive(Clone)]
pub struct Area {
    bytes: Arc<Mapping>,
    /// Where the pages are in the file.
    pages: Vec<u64>,
}

/// The byte that fills a page of canaries.
const CANARY: u8 = 0xc5;

impl Memory {
    fn new() -> Self {
        let file = sealed("guest", MEMORY).unwrap();
        let bytes = Mapping::new(&file, 0, MEMORY, true).unwrap();
        Self {
            bytes: Arc::new(bytes),
            file,
            next: Cell::new(0),
            canaries: RefCell::default(),
        }
    }

    /// The same memory, of which nothing has been given out but the first pages.
    pub fn again(other: &Memory) -> Self {
        Self {
            bytes: Arc::clone(&other.bytes),
            file: other.file.try_clone().unwrap(),
            next: Cell::new(8 * PAGE),
            canaries: RefCell::default(),
        }
    }

    fn page(&self) -> u64 {
        let at = self.next.get();
        // Every other page is of the second half.
        let half = MEMORY / 2;
        self.next.set(at + PAGE);
        assert!(at < MEMORY, "the guest has no more memory");
        let number = at / PAGE;
        (number / 8 * 4 + number % 4) * PAGE + if number % 8 < 4 { 0 } else { half }
    }

    fn canary(&self) {
        let page = self.page();
        assert!(self.bytes.write(page, &[CANARY; PAGE as usize]));
        self.canaries.borrow_mut().push(page);
    }

    /// So many bytes, in whole pages of zeroes.
    pub fn alloc(&self, length: u64) -> Area {
        self.canary();
        let zeroed = |page| {
            assert!(self.bytes.write(page, &[0; PAGE as usize]));
            page
        };
        let pages = (0..length.div_ceil(PAGE)).map(|_| zeroed(self.page()));
        let pages = pages.collect();
        self.canary();
        let bytes = Arc::clone(&self.bytes);
        Area { bytes, pages }
    }

    /// The list of the pages of an area, from the first on.
    pub fn list(&self, area: &Area) -> PageList {
        self.list_of(&area.addresses())
    }

    /// A list of addresses.
    pub fn list_of(&self, addresses: &[u64]) -> PageList {
        let mut next = 0u64;
        for chunk in addresses.chunks(511).rev() {
            let page = self.page();
            let mut words = [0u64; 512];
            words[..chunk.len()].copy_from_slice(chunk);
            words[511] = next;
            assert!(self.bytes.write(page, words.as_bytes()));
            next = address(page);
        }
        PageList {
            list: next.into(),
            pages: (addresses.len() as u32).into(),
            reserved: 0.into(),
        }
    }

    /// Where in the file an address of the guest's is.
    pub fn at(&self, address: u64) -> u64 {
        if address < HIGH {
            address
        } else {
            address - HIGH + MEMORY / 2
        }
    }

    /// How many pages of canaries are not as they were.
    pub fn damage(&self) -> usize {
        let is_whole = |at: &&u64| {
            let mut page = [0; PAGE as usize];
            assert!(self.bytes.read(**at, &mut page));
            page == [CANARY; PAGE as usize]
        };
        let canaries = self.canaries.borrow();
        canaries.len() - canaries.iter().filter(is_whole).count()
    }
}

/// The guest's address of what lies there in the file.
pub fn address(at: u64) -> u64 {
    if at < MEMORY / 2 {
        at
    } else {
        at - MEMORY / 2 + HIGH
    }
}

impl Area {
    pub fn len(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    pub fn addresses(&self) -> Vec<u64> {
        self.pages.iter().map(|page| address(*page)).collect()
    }

    fn at(&self, offset: u64) -> u64 {
        self.pages[(offset / PAGE) as usize] + offset % PAGE
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let count = (PAGE - at % PAGE).min((bytes.len() - done) as u64) as usize;
            assert!(self.bytes.write(self.at(at), &bytes[done..done + count]));
            done += count;
        }
    }

    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read_to(offset, &mut bytes);
        bytes
    }

    pub fn read_to(&self, offset: u64, bytes: &mut [u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let count = (PAGE - at % PAGE).min((bytes.len() - done) as u64) as usize;
            assert!(self.bytes.read(self.at(at), &mut bytes[done..done + count]));
            done += count;
        }
    }

    pub fn load(&self, offset: u64) -> u32 {
        self.bytes.load32(self.at(offset)).unwrap()
    }

    pub fn store(&self, offset: u64, value: u32) {
        assert!(self.bytes.store32(self.at(offset), value));
    }

    pub fn load64(&self, offset: u64) -> u64 {
        self.bytes.load(self.at(offset)).unwrap()
    }

    pub fn store64(&self, offset: u64, value: u64) {
        assert!(self.bytes.store(self.at(offset), value));
    }
}

/// Waits until something is so.
pub fn eventually<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(it) = f() {
            return it;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{what}: never");
        std::thread::yield_now();
    }
}

impl Guest {
    /// A guest at a port, whose driver has found the memory shared.
    pub fn new(device: &Arc<Device>, port: usize) -> Self {
        let adapter = Adapter::new(device, port, "guest", [2, 0, 0, 0, 0, port as u8]).unwrap();
        Self::with(adapter, port)
    }

    /// As [`Guest::new`], of an adapter that is there.
    pub fn with(adapter: Adapter, port: usize) -> Self {
        Self::of(Client::new(adapter), port)
    }

    /// As [`Guest::new`], at the socket of a process.
    pub fn at(path: &Path, port: usize) -> Self {
        Self::of(Client::at(path), port)
    }

    fn of(mut client: Client, port: usize) -> Self {
        let memory = Memory::new();
        let half = MEMORY / 2;
        assert_eq!(client.map(Some(&memory.file), 0, 0, half, 3), None);
        assert_eq!(client.map(Some(&memory.file), half, HIGH, half, 3), None);
        let vectors: Vec<_> = (0..4)
            .map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap())
            .collect();
        let files: Vec<_> = vectors.iter().map(AsFd::as_fd).collect();
        let irqs = words(&[20, 0x24, 2, 0, 4]);
        assert_eq!(client.call(SET_IRQS, &irqs, &files).error, None);
        let mut gid = [0; 16];
        (gid[0], gid[15]) = (0xfd, port as u8 + 1);
        let mut guest = Self {
            // Not the address that there is after a reset.
            command: [memory.page(), memory.page()][1],
            client,
            memory,
            vectors,
            tag: 0,
            gid,
        };
        guest.begin();
        guest
    }

    /// The first steps of a driver, also after a reset.
    pub fn begin(&mut self) {
        assert_eq!(self.client.write(7, 4, &[6, 0]), None);
        let page = self.memory.page();
        assert!(self.memory.bytes.store(page, 0x1234));
        let mut write = |register: usize, value: u64| {
            assert_eq!(
                self.client.write(0, register as u64, &value.to_le_bytes()),
                None
            );
        };
        write(register::CHECK_ADDRESS, address(page));
        write(register::CHECK_NONCE, 0x1234);
        self.command_area();
        self.write(register::CHECK, 1);
        assert_eq!(self.read(register::CHECK), check::SHARED);
    }

    /// Tells where commands are.
    pub fn command_area(&mut self) {
        let bytes = address(self.command).to_le_bytes();
        let at = register::COMMAND_ADDRESS as u64;
        assert_eq!(self.client.write(0, at, &bytes), None);
    }

    /// Gives the port its address and its path MTU, as a driver does next.
    pub fn up(&mut self) {
        let gid = self.gid;
        self.set_gid(0, gid).unwrap();
        self.named(opcode::SET_MTU, 5).unwrap();
    }

    pub fn write(&mut self, register: usize, value: u32) {
        let bytes = value.to_le_bytes();
        assert_eq!(self.client.write(0, register as u64, &bytes), None);
    }

    pub fn read(&mut self, register: usize) -> u32 {
        self.client.read32(0, register as u64)
    }

    /// Writes bytes as a command, rings, and returns what the response says: the error number, or
    /// the body.
    pub fn raw(&mut self, command: &[u8], tag: u32) -> Option<Result<Vec<u8>, u32>> {
        assert!(self.memory.bytes.write(self.command, command));
        self.write(register::COMMAND, tag);
        if self.read(register::COMMAND) != tag {
            return None;
        }
        let mut response = vec![0; COMMAND_AREA_SIZE - RESPONSE_OFFSET];
        let at = self.command + RESPONSE_OFFSET as u64;
        assert!(self.memory.bytes.read(at, &mut response));
        let (header, body) = ResponseHeader::read_from_prefix(&response).unwrap();
        assert_eq!((header.tag.get(), header.reserved.get()), (tag, 0));
        let length = header.length.get() as usize;
        Some(match header.status.get() {
            0 => Ok(body[..length].to_vec()),
            errno => {
                assert_eq!(length, 0);
                Err(errno)
            }
        })
    }

    /// Executes a command.
    pub fn command(
        &mut self,
        opcode: u16,
        operands: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Result<Vec<u8>, u32> {
        self.tag += 1;
        let header = CommandHeader {
            opcode: opcode.into(),
            version: 1.into(),
            length: (size_of_val(operands) as u32).into(),
            tag: self.tag.into(),
            reserved: 0.into(),
        };
        let bytes = [header.as_bytes(), operands.as_bytes()].concat();
        self.raw(&bytes, self.tag).expect("there is no response")
    }

    /// Executes a command that names an object.
    pub fn named(&mut self, opcode: u16, number: u32) -> Result<Vec<u8>, u32> {
        self.command(
            opcode,
            &Number {
                number: number.into(),
                reserved: 0.into(),
            },
        )
    }

    /// Executes a command that answers an object's name.
    pub fn create(
        &mut self,
        opcode: u16,
        operands: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Result<u32, u32> {
        let body = self.command(opcode, operands)?;
        let number = Number::read_from_bytes(&body).unwrap();
        assert_eq!(number.reserved.get(), 0);
        Ok(number.number.get())
    }

    pub fn info(&mut self) -> DeviceInfo {
        let body = self.command(opcode::QUERY_DEVICE, &[0u8; 0]).unwrap();
        DeviceInfo::read_from_bytes(&body).unwrap()
    }

    pub fn set_gid(&mut self, index: u32, gid: [u8; 16]) -> Result<Vec<u8>, u32> {
        let set = SetGid {
            index: index.into(),
            valid: u32::from(gid != [0; 16]).into(),
            gid,
        };
        self.command(opcode::SET_GID, &set)
    }

    pub fn pd(&mut self) -> u32 {
        self.create(opcode::ALLOC_PD, &[0u8; 0]).unwrap()
    }

    /// The vector was raised since it was asked last.
    pub fn raised(&self, vector: usize) -> bool {
        rustix::io::read(&self.vectors[vector], &mut [0; 8]).is_ok()
    }

    /// A context: its doorbell area and its status area.
    pub fn context(&mut self) -> Context {
        let doorbell = self.memory.alloc(abi::DB_AREA_SIZE as u64);
        let status = self.memory.alloc(abi::DB_AREA_SIZE as u64);
        let open = OpenContext {
            doorbell: self.memory.list(&doorbell),
            status: self.memory.list(&status),
        };
        let number = self.create(opcode::OPEN_CONTEXT, &open).unwrap();
        Context {
            number,
            doorbell,
            status,
        }
    }

    /// Registers memory, with all rights.
    pub fn register(&mut self, pd: u32, area: &Area, access: u32) -> u32 {
        let reg = self.region(pd, area, access);
        self.create(opcode::REG_MR, &reg).unwrap()
    }

    /// The command's operands to register all of an area, whose first byte has the address
    /// [`IOVA`].
    pub fn region(&self, pd: u32, area: &Area, access: u32) -> RegMr {
        RegMr {
            pd: pd.into(),
            access: access.into(),
            iova: IOVA.into(),
            length: area.len().into(),
            offset: 0.into(),
            flags: mr_flag::WRITABLE.into(),
            memory: self.memory.list(area),
        }
    }
}

/// The address of the first byte of a region.
pub const IOVA: u64 = 0x7000_0000;

/// All rights that a region may give.
pub const ALL_RIGHTS: u32 = 0x1f;

/// A context.
#[derive(Clone)]
pub struct Context {
    pub number: u32,
    pub doorbell: Area,
    pub status: Area,
}
