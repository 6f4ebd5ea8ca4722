// SPDX-License-Identifier: GPL-2.0

//! What a client may send, as told by a string of bytes, and what has to hold whatever that is.
//!
//! `tests/random.rs` runs this with random bytes, and `fuzz/` lets a fuzzer look for bytes that reach
//! further. No socket is involved: [`Session`] takes bytes and files.

#[allow(dead_code)] // The target of sessions has no use for it.
pub mod frames;
mod write;

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use ferrule_nic::adapter::Adapter;
use ferrule_nic::device::Device;
use ferrule_nic::mapping::sealed;
use ferrule_nic::protocol::MAX_RANGES;
use ferrule_nic::session::Session;
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{memfd_create, MemfdFlags};

/// How long the guest's file is.
const FILE: u64 = 65536;

/// A file of a kind: good memory, memory that can be truncated, an eventfd, or something else.
fn file(kind: u8) -> OwnedFd {
    static FILES: OnceLock<[OwnedFd; 4]> = OnceLock::new();
    let files = FILES.get_or_init(|| {
        let open = memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, FILE).unwrap();
        [
            sealed("good", FILE).unwrap(),
            open,
            eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
            std::fs::File::open("/proc/self/exe").unwrap().into(),
        ]
    });
    files[usize::from(kind % 4)].try_clone().unwrap()
}

/// One message of the script: a byte that tells the command, one for flags and files, one for the length
/// of the body; then the body, whose 8-byte words are often made such that they mean something.
fn message(script: &mut &[u8]) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut next = || {
        let (first, rest) = script.split_first()?;
        *script = rest;
        Some(*first)
    };
    let (command, how, length) = (next()?, next()?, next()?);
    let body: Vec<u8> = (0..length % 64).map(|_| next().unwrap_or(0)).collect();
    let mut bytes = vec![command, 0, u16::from(command % 24) as u8, 0];
    let size = 16 + body.len() as u32;
    bytes.extend(
        if how == 0xff {
            u32::from(length) << 16
        } else {
            size
        }
        .to_ne_bytes(),
    );
    bytes.extend((if how & 0x80 != 0 { 0x10u32 } else { 0 }).to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    let files = (0..how & 3)
        .map(|number| file((how >> 2).wrapping_add(number)))
        .collect();
    Some((bytes, files))
}

fn adapter() -> Adapter {
    Adapter::new(&Device::new(1).unwrap(), 0, "fuzz", [0; 6]).unwrap()
}

/// Runs a script.
pub fn run(script: &[u8]) {
    thread_local! {
        static ADAPTER: std::cell::RefCell<Adapter> = std::cell::RefCell::new(adapter());
    }
    ADAPTER.with_borrow_mut(|adapter| {
        session(adapter, script);
        adapter.disconnect();
        assert_eq!(adapter.memory().count(), (0, 0));
        let mut bytes = [0; 8];
        adapter.read(0, 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"FRUL\x02\0\0\0");
        adapter.read(7, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [0xf4, 0x1a, 0xf1, 0x10, 0, 0, 0x10, 0]);
    });
}

fn session(adapter: &mut Adapter, mut script: &[u8]) {
    let mut session = Session::default();
    let hello = [&[0, 0, 1, 0, 20, 0, 0, 0][..], &[0; 8], &[0, 0, 1, 0]].concat();
    push(&mut session, adapter, &hello, Vec::new());
    while let Some((bytes, files)) = message(&mut script) {
        if !push(&mut session, adapter, &bytes, files) {
            return;
        }
        let (ranges, bytes) = adapter.memory().count();
        assert!(ranges <= MAX_RANGES && bytes <= MAX_RANGES as u64 * FILE);
    }
}

/// Hands bytes over as they are wanted; false once the connection is closed.
fn push(
    session: &mut Session,
    adapter: &mut Adapter,
    mut bytes: &[u8],
    mut files: Vec<OwnedFd>,
) -> bool {
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_at(session.wanted().min(bytes.len()));
        match session.push(adapter, head, std::mem::take(&mut files)) {
            Err(_) => return false,
            Ok(None) => (),
            Ok(Some(reply)) => {
                let word = |at: usize| u32::from_ne_bytes(reply[at..at + 4].try_into().unwrap());
                assert_eq!(word(4) as usize, reply.len());
                assert!(
                    word(8) == 1 && word(12) == 0
                        || word(8) == 0x21 && word(12) != 0 && reply.len() == 16
                );
            }
        }
        bytes = rest;
    }
    true
}

/// A script of one message.
fn line(command: u8, how: u8, body: &[u8]) -> Vec<u8> {
    [&[command, how, body.len() as u8][..], body].concat()
}

/// Scripts that reach each command, to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let words = |values: &[u32]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect()
    };
    vec![
        // A range of good memory at 0x10000, and one without a file; the first is unmapped.
        line(2, 1, &words(&[32, 3, 0, 0, 0x10000, 0, 0x8000, 0])),
        line(2, 0, &words(&[32, 1, 0, 0, 0x20000, 0, 0x1000, 0])),
        line(2, 5, &words(&[32, 3, 0, 0, 0x30000, 0, 0x1000, 0])),
        line(3, 0, &words(&[24, 0, 0x10000, 0, 0x8000, 0])),
        line(3, 0, &words(&[24, 2, 0, 0, 0, 0])),
        line(4, 0, &words(&[16, 0, 0, 0])),
        line(5, 0, &words(&[32, 0, 2, 0, 0, 0, 0, 0])),
        line(7, 0, &words(&[16, 0, 2, 0])),
        line(8, 9, &words(&[20, 0x24, 2, 3, 1])),
        line(8, 0, &words(&[20, 0x21, 2, 0, 0])),
        line(9, 0, &words(&[0, 0, 7, 256])),
        // Bus master; the address, and the memory check; a vector; a reset by register and by capability.
        line(10, 0, &words(&[4, 0, 7, 4, 6])),
        line(10, 0, &words(&[0x20, 0, 0, 8, 0x10000, 0])),
        line(10, 0, &words(&[0x30, 0, 0, 4, 1])),
        line(10, 0, &words(&[0x34, 0, 0, 4, 3])),
        line(10, 0, &words(&[0x10, 0, 0, 4, 1])),
        line(10, 0, &words(&[0x48, 0, 7, 4, 0x8000])),
        line(13, 0, &[]),
    ]
}

/// Writes what the fuzzer begins with.
#[allow(dead_code)]
pub fn write_seeds() {
    write::write(&seeds());
}
