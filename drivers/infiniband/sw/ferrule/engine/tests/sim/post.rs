// SPDX-License-Identifier: GPL-2.0

//! Requests as a program posts them.

use ferrule_engine::{abi, fast, Access, RingLayout};
use zerocopy::IntoBytes;

use super::memory::SimQueue;
use super::program::ALL;

/// A send request as a program posts it.
#[derive(Clone, Debug, Default)]
pub struct Wr {
    pub wr_id: u64,
    pub opcode: u8,
    pub flags: u8,
    pub sges: Vec<(u64, u32, u32)>,
    pub inline: Option<Vec<u8>>,
    pub remote: (u64, u32),
    pub imm: [u8; 4],
    pub extra: [u8; 16],
}

impl Wr {
    pub fn send(wr_id: u64, sges: &[(u64, u32, u32)]) -> Self {
        Self {
            wr_id,
            flags: abi::wr_flags::SIGNALED,
            sges: sges.to_vec(),
            ..Self::default()
        }
    }

    pub fn write(wr_id: u64, sges: &[(u64, u32, u32)], remote: (u64, u32)) -> Self {
        Self {
            opcode: abi::wr_opcode::RDMA_WRITE,
            remote,
            ..Self::send(wr_id, sges)
        }
    }

    pub fn read(wr_id: u64, sges: &[(u64, u32, u32)], remote: (u64, u32)) -> Self {
        Self {
            opcode: abi::wr_opcode::RDMA_READ,
            remote,
            ..Self::send(wr_id, sges)
        }
    }

    pub fn compare_swap(
        wr_id: u64,
        sge: (u64, u32, u32),
        remote: (u64, u32),
        compare: u64,
        swap: u64,
    ) -> Self {
        let words = abi::AtomicWords {
            compare_add: compare.into(),
            swap: swap.into(),
        };
        Self {
            opcode: abi::wr_opcode::ATOMIC_CMP_AND_SWP,
            extra: words.as_bytes().try_into().unwrap(),
            ..Self::read(wr_id, &[sge], remote)
        }
    }

    pub fn local_inv(wr_id: u64, key: u32) -> Self {
        Self {
            opcode: abi::wr_opcode::LOCAL_INV,
            imm: key.to_le_bytes(),
            ..Self::send(wr_id, &[])
        }
    }

    /// Binds the window of key `window` to `length` bytes of a region, with `key` from then on.
    pub fn bind(wr_id: u64, window: u32, key: u32, region: (u64, u32), length: u64) -> Self {
        let words = abi::BindWords {
            mw_rkey: window.into(),
            access: (ALL.0 & !Access::LOCAL_WRITE.0).into(),
            length: length.into(),
        };
        Self {
            opcode: abi::wr_opcode::BIND_MW,
            remote: (region.0, key),
            imm: region.1.to_le_bytes(),
            extra: words.as_bytes().try_into().unwrap(),
            ..Self::send(wr_id, &[])
        }
    }

    /// Registers the region of `key`, or with other lower bits, as `length` bytes at `iova`.
    pub fn register(wr_id: u64, key: u32, iova: u64, length: u64) -> Self {
        let words = abi::BindWords {
            mw_rkey: 0.into(),
            access: ALL.0.into(),
            length: length.into(),
        };
        Self {
            opcode: fast::WR_REGISTER,
            remote: (iova, key),
            extra: words.as_bytes().try_into().unwrap(),
            ..Self::send(wr_id, &[])
        }
    }

    /// A bind, or a registration, that gives these rights.
    pub fn with_access(mut self, access: Access) -> Self {
        self.extra[4..8].copy_from_slice(&access.0.to_le_bytes());
        self
    }

    pub fn fetch_add(wr_id: u64, sge: (u64, u32, u32), remote: (u64, u32), add: u64) -> Self {
        Self {
            opcode: abi::wr_opcode::ATOMIC_FETCH_AND_ADD,
            ..Self::compare_swap(wr_id, sge, remote, add, 0)
        }
    }

    /// Writes `value` all at once.
    pub fn atomic_write(wr_id: u64, remote: (u64, u32), value: u64) -> Self {
        let words = abi::AtomicWriteWords {
            value: value.to_ne_bytes(),
            reserved: [0; 8],
        };
        Self {
            opcode: abi::wr_opcode::ATOMIC_WRITE,
            extra: words.as_bytes().try_into().unwrap(),
            ..Self::write(wr_id, &[], remote)
        }
    }

    /// Flushes so many bytes until all see them.
    pub fn flush(wr_id: u64, remote: (u64, u32), length: u32) -> Self {
        let words = abi::FlushWords {
            length: length.into(),
            placement: abi::flush_placement::GLOBAL,
            level: abi::flush_level::RANGE,
            reserved: [0; 10],
        };
        Self {
            opcode: abi::wr_opcode::FLUSH,
            extra: words.as_bytes().try_into().unwrap(),
            ..Self::write(wr_id, &[], remote)
        }
    }

    /// A flush of these placement types and this selectivity level.
    pub fn with_placement(mut self, placement: u8, level: u8) -> Self {
        self.extra[4..6].copy_from_slice(&[placement, level]);
        self
    }

    /// A datagram.
    pub fn datagram(wr_id: u64, sges: &[(u64, u32, u32)], to: (u32, u32), qkey: u32) -> Self {
        let words = abi::Destination {
            ah: to.0.into(),
            remote_qpn: to.1.into(),
            remote_qkey: qkey.into(),
            reserved: 0.into(),
        };
        Self {
            extra: words.as_bytes().try_into().unwrap(),
            ..Self::send(wr_id, sges)
        }
    }

    /// Over XRC, to this shared receive queue of the peer.
    pub fn to_srq(self, number: u32) -> Self {
        use abi::wr_opcode::{ATOMIC_CMP_AND_SWP, ATOMIC_FETCH_AND_ADD};

        if matches!(self.opcode, ATOMIC_CMP_AND_SWP | ATOMIC_FETCH_AND_ADD) {
            return self.with_imm(number.to_le_bytes());
        }
        let words = abi::XrcWords {
            remote_srq: number.into(),
            reserved: [0; 12],
        };
        Self {
            extra: words.as_bytes().try_into().unwrap(),
            ..self
        }
    }

    pub fn with_opcode(self, opcode: u8) -> Self {
        Self { opcode, ..self }
    }

    pub fn with_imm(self, imm: [u8; 4]) -> Self {
        Self { imm, ..self }
    }

    pub fn with_flags(self, flags: u8) -> Self {
        Self { flags, ..self }
    }

    pub fn inline(self, bytes: &[u8]) -> Self {
        Self {
            inline: Some(bytes.to_vec()),
            flags: self.flags | abi::wr_flags::INLINE,
            sges: Vec::new(),
            ..self
        }
    }
}

pub(super) fn put_sges(slot: &mut Vec<u8>, sges: &[(u64, u32, u32)]) {
    for &(addr, length, lkey) in sges {
        let sge = abi::Sge {
            addr: addr.into(),
            length: length.into(),
            lkey: lkey.into(),
        };
        slot.extend_from_slice(sge.as_bytes());
    }
}

/// Writes a slot of a receive queue, or of a shared one.
pub(super) fn fill_recv(
    queue: &SimQueue,
    ring: &RingLayout,
    index: u32,
    wr_id: u64,
    sges: &[(u64, u32, u32)],
) {
    let head = abi::RecvWqe {
        wr_id: wr_id.into(),
        num_sge: (sges.len() as u16).into(),
        reserved: [0; 6],
    };
    let mut slot = head.as_bytes().to_vec();
    put_sges(&mut slot, sges);
    let offset = ring.offset + index % ring.depth * ring.stride;
    queue.write(offset as usize, &slot);
}
