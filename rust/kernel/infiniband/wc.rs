// SPDX-License-Identifier: GPL-2.0

//! Work completions, for the kernel's own users.

use core::mem::MaybeUninit;

use kernel::prelude::*;

use crate::{
    bindings,
    port::PORT,
    qp::Notifier, //
};

/// The operation that a completion is of: `enum ib_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the C enumeration")]
pub enum CompletionOpcode {
    Send,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
    LocalInv,
    Register,
    Recv,
    RecvWriteWithImm,
}

impl CompletionOpcode {
    fn to_raw(self) -> bindings::ib_wc_opcode {
        match self {
            Self::Send => bindings::ib_wc_opcode_IB_WC_SEND,
            Self::Write => bindings::ib_wc_opcode_IB_WC_RDMA_WRITE,
            Self::Read => bindings::ib_wc_opcode_IB_WC_RDMA_READ,
            Self::CompareSwap => bindings::ib_wc_opcode_IB_WC_COMP_SWAP,
            Self::FetchAdd => bindings::ib_wc_opcode_IB_WC_FETCH_ADD,
            Self::LocalInv => bindings::ib_wc_opcode_IB_WC_LOCAL_INV,
            Self::Register => bindings::ib_wc_opcode_IB_WC_REG_MR,
            Self::Recv => bindings::ib_wc_opcode_IB_WC_RECV,
            Self::RecvWriteWithImm => bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM,
        }
    }
}

/// Immediate data or the like, which a message brought beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    Nothing,
    /// Immediate data, in the order of the wire.
    Immediate([u8; 4]),
    /// The remote key that it has invalidated.
    Invalidated(u32),
}

/// A completion: `struct ib_wc`.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// That of the request.
    pub wr_id: u64,
    /// `enum ib_wc_status`.
    pub status: u32,
    /// The operation.
    pub opcode: CompletionOpcode,
    /// The driver's own code of an error.
    pub vendor_err: u32,
    /// The bytes that were received.
    pub byte_len: u32,
    /// Immediate data or the like.
    pub extra: Extra,
    /// The number of the queue pair that sent a datagram.
    pub src_qp: u32,
    /// A global route header is in front of the data.
    pub grh: bool,
    /// The index of the P_Key.
    pub pkey_index: u16,
    /// The service level.
    pub sl: u8,
    /// The identifier of the VLAN that a datagram came in.
    pub vlan: Option<u16>,
}

/// Space for completions, which are filled in one after the other.
///
/// # Invariants
///
/// `count` is at most the length of `entries`, of which so many are initialised.
pub struct Completions<'a> {
    entries: &'a mut [MaybeUninit<bindings::ib_wc>],
    count: usize,
}

impl Completions<'_> {
    /// Whether there is no more space.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.count == self.entries.len()
    }

    /// Adds a completion of the queue pair whose way to its owner is `qp`. If the pair has gone, or
    /// if there is no space, it is dropped.
    ///
    /// # Safety
    ///
    /// The queue pair completes to the queue that is polled, its user has posted a request with
    /// this [`wr_id`](Completion::wr_id) to it, and this is the first completion of that request.
    /// For users take the number for the address of what they keep for the request, call the
    /// function that they find there (`struct ib_cqe`), and free it.
    pub unsafe fn push(&mut self, qp: &Notifier, completion: &Completion) {
        qp.with_raw(|qp| {
            let Some(slot) = self.entries.get_mut(self.count) else {
                return;
            };
            let mut wc = bindings::ib_wc {
                status: completion.status,
                opcode: completion.opcode.to_raw(),
                vendor_err: completion.vendor_err,
                byte_len: completion.byte_len,
                qp,
                src_qp: completion.src_qp,
                pkey_index: completion.pkey_index,
                sl: completion.sl,
                port_num: PORT,
                ..Default::default()
            };
            let mut flags = 0;
            if completion.grh {
                flags |= bindings::ib_wc_flags_IB_WC_GRH;
            }
            if let Some(vlan) = completion.vlan {
                flags |= bindings::ib_wc_flags_IB_WC_WITH_VLAN;
                wc.vlan_id = vlan;
            }
            // SAFETY: The fields of these unions may be written whatever they are.
            unsafe {
                *wc.__bindgen_anon_1.wr_id.as_mut() = completion.wr_id;
                match completion.extra {
                    Extra::Nothing => (),
                    Extra::Immediate(imm) => {
                        *wc.ex.imm_data.as_mut() = u32::from_ne_bytes(imm);
                        flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM;
                    }
                    Extra::Invalidated(key) => {
                        *wc.ex.invalidate_rkey.as_mut() = key;
                        flags |= bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE;
                    }
                }
            }
            wc.wc_flags = flags as c_int;
            slot.write(wc);
            // INVARIANT: The next one was just initialised.
            self.count += 1;
        });
    }
}

/// Runs `poll` with space for completions, and returns how many were filled in.
///
/// # Safety
///
/// There is space for `count` completions at `entries`.
pub(crate) unsafe fn poll(
    entries: *mut bindings::ib_wc,
    count: c_int,
    poll: impl FnOnce(&mut Completions<'_>) -> Result,
) -> Result<c_int> {
    let count = usize::try_from(count)?;
    if count == 0 {
        return Ok(0);
    }
    // INVARIANT: None is initialised.
    let mut completions = Completions {
        // SAFETY: By the requirements of this function.
        entries: unsafe { core::slice::from_raw_parts_mut(entries.cast(), count) },
        count: 0,
    };
    poll(&mut completions)?;
    Ok(completions.count as c_int)
}
