// SPDX-License-Identifier: GPL-2.0

//! Fast registration: regions that requests register, by lists that the guest may write at any
//! time.

use ferrule_engine::abi::wr_opcode;
use ferrule_engine::fast::{WC_REGISTER, WR_REGISTER};
use ferrule_nic::interface::*;
use ferrule_nic::mapping::{sealed, Mapping};
use zerocopy::IntoBytes;

use crate::client::{unmap_body, DMA_UNMAP};
use crate::data::{pair_with, pattern, program, Program};
use crate::driver::queues::*;
use crate::driver::*;

const INVAL: u32 = 22;
const NOMEM: u32 = 12;
const FAULT: u32 = 14;

/// Completions of requests that were refused here, and by the peer.
const BIND_ERROR: u8 = 6;
const LOCAL_OPERATION: u8 = 2;
const REMOTE_ACCESS: u8 = 10;

/// A kernel user: two queue pairs, a region for fast registration, and its list.
struct User {
    p: Program,
    a: Qp,
    b: Qp,
    list: Area,
    key: u32,
}

/// The region of a list of so many bytes.
fn region(guest: &Guest, pd: u32, list: &Area, length: u64) -> RegMr {
    RegMr {
        pd: pd.into(),
        access: 0.into(),
        iova: 0.into(),
        length: length.into(),
        offset: 0.into(),
        flags: mr_flag::FAST.into(),
        memory: guest.memory.list(list),
    }
}

fn user(guest: &mut Guest) -> User {
    let p = program(guest);
    let list = guest.memory.alloc(u64::from(MAX_EXTENTS) * 16);
    let fast = region(guest, p.pd, &list, list.len());
    let key = guest.create(opcode::REG_MR, &fast).unwrap();
    let (a, b) = pair(guest, &p);
    User { p, a, b, list, key }
}

/// Two queue pairs of a kernel user, connected with each other.
fn pair(guest: &mut Guest, p: &Program) -> (Qp, Qp) {
    pair_with(guest, p, |create| {
        create.flags = qp_flag::PRIVILEGED.into();
    })
}

impl User {
    /// Writes the list, and its end if there is space.
    fn map(&self, extents: &[(u64, u64)]) {
        for (number, (address, length)) in extents.iter().chain(&[(0, 0)]).enumerate() {
            let entry = Extent {
                address: (*address).into(),
                length: (*length).into(),
            };
            let at = number as u64 * 16;
            if at < self.list.len() {
                self.list.write(at, entry.as_bytes());
            }
        }
    }

    /// Executes a request of the first queue pair, and answers its status.
    fn status(&mut self, guest: &mut Guest, wqe: &Wqe) -> u8 {
        guest.send(&mut self.a, wqe);
        let cqe = self.p.cq.wait();
        assert_eq!(cqe.wr_id.get(), wqe.id);
        assert!(cqe.status != 0 || wqe.opcode != WR_REGISTER || cqe.opcode == WC_REGISTER);
        cqe.status
    }

    /// Registers what the list names, and answers the status.
    fn register(&mut self, guest: &mut Guest, key: u32, length: u64) -> u8 {
        self.status(guest, &register(key, length))
    }

    /// As [`User::register`], refused: the queue pairs are broken then, and others take their
    /// place.
    fn refused(&mut self, guest: &mut Guest, extents: &[(u64, u64)], length: u64) {
        self.map(extents);
        let status = self.register(guest, self.key, length);
        assert_eq!(status, BIND_ERROR, "{length} bytes of {extents:?}");
        (self.a, self.b) = pair(guest, &self.p);
        let write = Wqe::new(8, wr_opcode::RDMA_WRITE).local(0, 1, self.p.key);
        let status = self.status(guest, &write.remote(0, self.key));
        assert_eq!(status, REMOTE_ACCESS, "the region opens something");
        (self.a, self.b) = pair(guest, &self.p);
    }
}

/// Registers the region of a key as so many bytes from [`IOVA`] on, with all rights.
fn register(key: u32, length: u64) -> Wqe {
    let mut wqe = Wqe::new(1, WR_REGISTER).remote(0, key);
    wqe.extra = [0xf << 32, length];
    wqe
}

fn invalidate(key: u32) -> Wqe {
    let mut wqe = Wqe::new(2, wr_opcode::LOCAL_INV);
    wqe.remote = (0u64.wrapping_sub(IOVA), 0);
    wqe.imm = key;
    wqe
}

#[test]
fn a_region_is_registered_anew() {
    let (_worker, [mut guest]) = guests();
    assert_ne!(guest.read(register::FEATURES) & feature::FAST, 0);
    let mut user = user(&mut guest);
    let memory = guest.memory.alloc(16 * PAGE);
    let pages = memory.addresses();
    let bytes = pattern(40_000, 5);
    user.p.area.write(0, &bytes);
    let write = Wqe::new(3, wr_opcode::RDMA_WRITE).local(0, 10_000, user.p.key);
    // Bytes that begin and end anywhere, in any order; each time by another key.
    let extents = [
        (pages[9] + 100, 1000),
        (pages[2], 4096),
        (pages[5] + 1, 4095),
        (pages[0] + 7, 809),
    ];
    for round in 0..3u32 {
        memory.write(0, &vec![0; 16 * PAGE as usize]);
        let key = user.key ^ round;
        user.map(&extents);
        assert_eq!(user.register(&mut guest, key, 10_000), 0);
        // Later changes of the list do not matter.
        user.map(&[(pages[15], 4096)]);
        assert_eq!(user.status(&mut guest, &write.remote(0, key)), 0);
        assert_eq!(memory.read(9 * PAGE + 100, 1000), bytes[..1000]);
        assert_eq!(memory.read(2 * PAGE, 4096), bytes[1000..5096]);
        assert_eq!(memory.read(5 * PAGE + 1, 4095), bytes[5096..9191]);
        assert_eq!(memory.read(7, 809), bytes[9191..10_000]);
        assert_eq!(memory.read(0, 7), [0; 7]);
        assert_eq!(memory.read(7 + 809, 100), [0; 100]);
        assert_eq!(memory.read(15 * PAGE, 4096), [0; 4096]);
        assert_eq!(user.status(&mut guest, &invalidate(key)), 0);
    }
    // The whole list, of pages of 8 bytes each, without an end.
    let many: Vec<_> = (0..512u64)
        .map(|number| (pages[number as usize % 16] + number * 8, 8))
        .collect();
    user.map(&many);
    let key = user.key ^ 77;
    assert_eq!(user.register(&mut guest, key, 4096), 0);
    let write = Wqe::new(4, wr_opcode::RDMA_WRITE).local(0, 4096, user.p.key);
    assert_eq!(user.status(&mut guest, &write.remote(0, key)), 0);
    for number in 0..512u64 {
        let at = number % 16 * PAGE + number * 8;
        let from = number as usize * 8;
        assert_eq!(memory.read(at, 8), bytes[from..from + 8], "{number}");
    }
    assert_eq!(guest.memory.damage(), 0);
    // It goes by the key that it was made with, registered or not.
    let info = guest.named(opcode::QUERY_MR, user.key).unwrap();
    assert_eq!(info[20..24], 6u32.to_le_bytes(), "FAST, WRITABLE");
    guest.named(opcode::DEREG_MR, user.key).unwrap();
    let read = Wqe::new(5, wr_opcode::RDMA_READ).local(0, 8, user.p.key);
    assert_eq!(user.status(&mut guest, &read.remote(0, key)), REMOTE_ACCESS);
}

#[test]
fn bytes_over_the_ends_of_ranges() {
    let (_worker, [mut guest]) = guests();
    let mut user = user(&mut guest);
    let file = sealed("hotplug", 4 * PAGE).unwrap();
    let bytes = Mapping::new(&file, 0, 4 * PAGE, true).unwrap();
    // Two ranges that follow each other for the guest, and not in the file.
    let at = 1 << 40;
    let mut map = |offset, address| guest.client.map(Some(&file), offset, address, 2 * PAGE, 3);
    assert_eq!(map(2 * PAGE, at), None);
    assert_eq!(map(0, at + 2 * PAGE), None);
    user.map(&[(at + PAGE + 1, 2 * PAGE)]);
    assert_eq!(user.register(&mut guest, user.key, 2 * PAGE), 0);
    let data = pattern(2 * PAGE as usize, 1);
    user.p.area.write(0, &data);
    let write = Wqe::new(3, wr_opcode::RDMA_WRITE).local(0, 2 * PAGE as u32, user.p.key);
    assert_eq!(user.status(&mut guest, &write.remote(0, user.key)), 0);
    let mut read = vec![0; PAGE as usize + 1];
    assert!(bytes.read(0, &mut read));
    assert_eq!(read, data[PAGE as usize - 1..]);
    // One of the ranges is given back: memory of it that was registered is reached no more, and not
    // registered again.
    let unmap = unmap_body(0, at + 2 * PAGE, 2 * PAGE);
    assert_eq!(guest.client.call(DMA_UNMAP, &unmap, &[]).error, None);
    let status = user.status(&mut guest, &write.remote(0, user.key));
    assert!(status != 0 && status != BIND_ERROR, "{status}");
    (user.a, user.b) = pair(&mut guest, &user.p);
    assert_eq!(user.status(&mut guest, &invalidate(user.key)), 0);
    user.refused(&mut guest, &[(at + PAGE + 1, 2 * PAGE)], 2 * PAGE);
    // It counts no more, and the other range can be registered.
    user.map(&[(at + PAGE, PAGE)]);
    assert_eq!(user.register(&mut guest, user.key, PAGE), 0);
}

#[test]
fn a_list_that_is_given_back() {
    let (_worker, [mut guest]) = guests();
    let mut user = user(&mut guest);
    let file = sealed("hotplug", 2 * PAGE).unwrap();
    let at = 1 << 40;
    assert_eq!(guest.client.map(Some(&file), 0, at, 2 * PAGE, 1), None);
    let mut fast = region(&guest, user.p.pd, &user.list, 2 * PAGE);
    fast.memory = guest.memory.list_of(&[at, at + PAGE]);
    // The device only reads a list.
    user.key = guest.create(opcode::REG_MR, &fast).unwrap();
    let extent = Extent {
        address: user.list.addresses()[0].into(),
        length: 8.into(),
    };
    let bytes = Mapping::new(&file, 0, 2 * PAGE, true).unwrap();
    assert!(bytes.write(0, extent.as_bytes()));
    assert_eq!(user.register(&mut guest, user.key, 8), 0);
    assert_eq!(user.status(&mut guest, &invalidate(user.key)), 0);
    let unmap = unmap_body(0, at, 2 * PAGE);
    assert_eq!(guest.client.call(DMA_UNMAP, &unmap, &[]).error, None);
    user.refused(&mut guest, &[], 8);
}

#[test]
fn lists_that_make_no_sense() {
    let (_worker, [mut guest]) = guests();
    let mut user = user(&mut guest);
    let rom = sealed("rom", PAGE).unwrap();
    let at = 1 << 40;
    assert_eq!(guest.client.map(Some(&rom), 0, at, PAGE, 1), None);
    assert_eq!(guest.client.map(None, 0, at + PAGE, PAGE, 3), None);
    let good = user.p.area.addresses()[0];
    let guest = &mut guest;
    user.refused(guest, &[], 0);
    user.refused(guest, &[], 8);
    user.refused(guest, &[(good, 16)], 8);
    user.refused(guest, &[(good, 8)], 16);
    user.refused(guest, &[(1 << 50, 8)], 8);
    user.refused(guest, &[(good, 8), (1 << 50, 8)], 16);
    user.refused(guest, &[(u64::MAX, 8)], 8);
    user.refused(guest, &[(u64::MAX - 7, 8)], 8);
    user.refused(guest, &[(good, u64::MAX)], u64::MAX);
    user.refused(guest, &[(good, 16), (good, u64::MAX - 7)], 8);
    user.refused(guest, &[(at + PAGE, 8)], 8);
    // All of memory many times is more pieces than a list may name.
    let half = 32 << 20;
    let mut ranges = Vec::new();
    for number in 0..900u64 {
        let address = (2 << 40) + number * PAGE;
        assert_eq!(guest.client.map(Some(&rom), 0, address, PAGE, 1), None);
        ranges.push(address);
    }
    let all = (2 << 40, 900 * PAGE);
    user.map(&[all]);
    assert_eq!(user.register(guest, user.key, 900 * PAGE), 0);
    assert_eq!(user.status(guest, &invalidate(user.key)), 0);
    user.refused(guest, &[all, all], 1800 * PAGE);
    user.refused(guest, &[all; 512], 512 * 900 * PAGE);
    // Bytes many times, in one range, are as good as once.
    user.map(&[(0, half), (0, half)]);
    assert_eq!(user.register(guest, user.key, 2 * half), 0);
    assert_eq!(user.status(guest, &invalidate(user.key)), 0);
    // Memory that is only to be read can be registered, and not written.
    user.map(&[(at, 8)]);
    assert_eq!(user.register(guest, user.key, 8), 0);
    let read = Wqe::new(3, wr_opcode::RDMA_READ).local(0, 8, user.p.key);
    assert_eq!(user.status(guest, &read.remote(0, user.key)), 0);
    let write = Wqe::new(4, wr_opcode::RDMA_WRITE).local(0, 8, user.p.key);
    assert_ne!(user.status(guest, &write.remote(0, user.key)), 0);
    assert_eq!(guest.memory.damage(), 0);
}

#[test]
fn requests_that_may_not() {
    let (_worker, [mut guest, mut other]) = guests();
    let mut user = user(&mut guest);
    let good = user.p.area.addresses()[0];
    user.map(&[(good, 8)]);
    // A program's queue pair knows no such request.
    let (mut a, _b) = crate::data::pair(&mut guest, &user.p);
    guest.send(&mut a, &register(user.key, 8));
    assert_eq!(user.p.cq.wait().status, LOCAL_OPERATION);
    // Regions that are for something else, of another domain, or of nobody.
    let pd = guest.pd();
    let list = guest.memory.alloc(PAGE);
    let fast = region(&guest, pd, &list, 16);
    let foreign = guest.create(opcode::REG_MR, &fast).unwrap();
    for key in [user.p.key, foreign, 0, 1 << 20, u32::MAX] {
        assert_eq!(user.register(&mut guest, key, 8), BIND_ERROR, "{key:#x}");
        (user.a, user.b) = pair(&mut guest, &user.p);
    }
    // Another guest's queue pairs cannot name it either, whatever the number of their domain.
    let mut stranger = self::user(&mut other);
    assert_eq!(
        stranger.register(&mut other, user.key, 8) == 0,
        stranger.key == user.key
    );
    // Not twice, and not with rights that it cannot give.
    let mut bind = register(user.key, 8);
    bind.extra[0] = 0x1f << 32;
    assert_eq!(user.status(&mut guest, &bind), BIND_ERROR);
    (user.a, user.b) = pair(&mut guest, &user.p);
    assert_eq!(user.register(&mut guest, user.key, 8), 0);
    assert_eq!(user.register(&mut guest, user.key, 8), BIND_ERROR);
}

#[test]
fn commands_that_are_refused() {
    let (_worker, [mut guest]) = guests();
    let p = program(&mut guest);
    let list = guest.memory.alloc(2 * PAGE);
    let good = region(&guest, p.pd, &list, 2 * PAGE);
    let mut refused = |change: &dyn Fn(&mut RegMr)| {
        let mut region = good;
        change(&mut region);
        guest.create(opcode::REG_MR, &region).unwrap_err()
    };
    assert_eq!(refused(&|r| r.iova = 1.into()), INVAL);
    assert_eq!(refused(&|r| r.access = 1.into()), INVAL);
    assert_eq!(refused(&|r| r.offset = 16.into()), INVAL);
    assert_eq!(refused(&|r| r.length = 0.into()), INVAL);
    assert_eq!(refused(&|r| r.length = (2 * PAGE - 8).into()), INVAL);
    assert_eq!(refused(&|r| r.length = (2 * PAGE + 16).into()), INVAL);
    assert_eq!(refused(&|r| r.length = u64::MAX.into()), INVAL);
    assert_eq!(refused(&|r| r.memory.list = (1 << 50).into()), FAULT);
    for other in [mr_flag::ALL, mr_flag::WRITABLE] {
        assert_eq!(
            refused(&|r| r.flags = (mr_flag::FAST | other).into()),
            INVAL
        );
    }
    // A region is for one or for the other.
    let key = guest.create(opcode::REG_MR, &good).unwrap();
    for (key, change) in [
        (key, guest.region(p.pd, &p.area, 1)),
        (key, good),
        (p.key, good),
    ] {
        let change = ReregMr {
            key: key.into(),
            mask: rereg::MEMORY.into(),
            change,
        };
        assert_eq!(guest.command(opcode::REREG_MR, &change), Err(INVAL));
    }
    // There are as many as of other regions.
    let most = guest.info().max_mr.get();
    let error = (2..=most).find_map(|_| guest.create(opcode::REG_MR, &good).err());
    assert_eq!(error, Some(NOMEM));
}
