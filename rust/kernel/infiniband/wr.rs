// SPDX-License-Identifier: GPL-2.0

//! Work requests of the kernel's own users.
//!
//! Requests are lent for the time of the call that posts them. Their lists and data are the user's,
//! who is trusted as all code of the kernel is. The user trusts the driver in turn: that it
//! completes each request once and by its number, which
//! [`Completions::push`](crate::wc::Completions::push) asks for, and that it reaches no
//! [`memory`](crate::memory) but what requests name. The calls may come with interrupts off.

use core::{
    marker::PhantomData,
    ptr, //
};

use kernel::prelude::*;
use kernel_ext::{
    error::code::EOPNOTSUPP,
    mm::copy_racing, //
};

use crate::{
    bindings,
    Access,
    Ah,
    Driver, //
};

/// An entry of a scatter/gather list: `struct ib_sge`.
#[repr(transparent)]
pub struct Sge(bindings::ib_sge);

impl Sge {
    /// The address of the first byte.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.0.addr
    }

    /// The length in bytes.
    #[inline]
    pub fn length(&self) -> u32 {
        self.0.length
    }

    /// The local key.
    #[inline]
    pub fn lkey(&self) -> u32 {
        self.0.lkey
    }
}

/// The list of `count` entries at `entries`.
///
/// # Safety
///
/// There are as many entries, for the lifetime `'a`.
#[inline]
unsafe fn sges<'a>(entries: *const bindings::ib_sge, count: c_int) -> &'a [Sge] {
    match usize::try_from(count) {
        Ok(0) | Err(_) => &[],
        // SAFETY: By the requirements of this function; `Sge` is transparent.
        Ok(count) => unsafe { core::slice::from_raw_parts(entries.cast(), count) },
    }
}

/// The operation of a send request: `enum ib_wr_opcode` with the fields of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the names are those of the C structures and of the verbs' manual"
)]
pub enum Operation {
    /// SEND.
    Send,
    /// SEND with immediate data, in the order of the wire.
    SendWithImm([u8; 4]),
    /// SEND that invalidates a remote key of the receiver.
    SendWithInv(u32),
    /// RDMA WRITE.
    Write { remote_addr: u64, rkey: u32 },
    /// RDMA WRITE with immediate data, in the order of the wire.
    WriteWithImm {
        remote_addr: u64,
        rkey: u32,
        imm: [u8; 4],
    },
    /// RDMA READ.
    Read { remote_addr: u64, rkey: u32 },
    /// RDMA READ that invalidates a local key when its data have come.
    ReadWithInv {
        remote_addr: u64,
        rkey: u32,
        local: u32,
    },
    /// Compare and swap.
    CompareSwap {
        remote_addr: u64,
        rkey: u32,
        compare: u64,
        swap: u64,
    },
    /// Fetch and add.
    FetchAdd {
        remote_addr: u64,
        rkey: u32,
        add: u64,
    },
    /// Invalidates a local key.
    LocalInv(u32),
    /// Registers a region for fast registration as the memory that was mapped to it.
    Register {
        key: u32,
        access: Access,
        iova: u64,
        length: u64,
    },
}

/// A send request: `struct ib_send_wr`.
pub struct SendRequest<'a, D> {
    raw: &'a bindings::ib_send_wr,
    is_datagram: bool,
    _driver: PhantomData<fn() -> D>,
}

/// The destination of a datagram.
pub struct Destination<'a, D: Driver> {
    /// The address handle.
    pub ah: &'a Ah<D>,
    /// The number of the queue pair there.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
}

impl<'a, D: Driver> SendRequest<'a, D> {
    fn has(&self, flag: bindings::ib_send_flags) -> bool {
        i64::from(self.raw.send_flags) & i64::from(flag) != 0
    }

    /// The number that its completion gets.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Whichever of the union's fields is there, this number stands for it.
        unsafe { *self.raw.__bindgen_anon_1.wr_id.as_ref() }
    }

    /// The operation; none if this crate does not know it.
    pub fn operation(&self) -> Option<Operation> {
        let raw: *const bindings::ib_send_wr = self.raw;
        // SAFETY: The opcode says which of the fields is there; any bytes are valid for both.
        let (imm, key) = unsafe {
            let imm: u32 = *self.raw.ex.imm_data.as_ref();
            (imm.to_ne_bytes(), *self.raw.ex.invalidate_rkey.as_ref())
        };
        // SAFETY: The opcodes by which these are called have such a structure around the request.
        let rdma = || unsafe { &*raw.cast::<bindings::ib_rdma_wr>() };
        // SAFETY: The opcodes by which this is called have such a structure around the request.
        let atomic = || unsafe { &*raw.cast::<bindings::ib_atomic_wr>() };
        Some(match self.raw.opcode {
            bindings::ib_wr_opcode_IB_WR_SEND => Operation::Send,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => Operation::SendWithImm(imm),
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => Operation::SendWithInv(key),
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE => Operation::Write {
                remote_addr: rdma().remote_addr,
                rkey: rdma().rkey,
            },
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM => Operation::WriteWithImm {
                remote_addr: rdma().remote_addr,
                rkey: rdma().rkey,
                imm,
            },
            bindings::ib_wr_opcode_IB_WR_RDMA_READ => Operation::Read {
                remote_addr: rdma().remote_addr,
                rkey: rdma().rkey,
            },
            bindings::ib_wr_opcode_IB_WR_RDMA_READ_WITH_INV => Operation::ReadWithInv {
                remote_addr: rdma().remote_addr,
                rkey: rdma().rkey,
                local: key,
            },
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP => Operation::CompareSwap {
                remote_addr: atomic().remote_addr,
                rkey: atomic().rkey,
                compare: atomic().compare_add,
                swap: atomic().swap,
            },
            bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => Operation::FetchAdd {
                remote_addr: atomic().remote_addr,
                rkey: atomic().rkey,
                add: atomic().compare_add,
            },
            bindings::ib_wr_opcode_IB_WR_LOCAL_INV => Operation::LocalInv(key),
            bindings::ib_wr_opcode_IB_WR_REG_MR => {
                // SAFETY: This opcode has such a structure around the request. The region is alive
                // during the call, and nobody maps to it meanwhile; other parts of it may change.
                let (reg, iova, length) = unsafe {
                    let reg = &*raw.cast::<bindings::ib_reg_wr>();
                    (reg, (*reg.mr).iova, (*reg.mr).length)
                };
                Operation::Register {
                    key: reg.key,
                    access: Access::from_bits(reg.access as u32),
                    iova,
                    length,
                }
            }
            _ => return None,
        })
    }

    /// The destination, if the queue pair is one for datagrams.
    pub fn destination(&self) -> Option<Destination<'a, D>> {
        if !self.is_datagram {
            return None;
        }
        let raw: *const bindings::ib_send_wr = self.raw;
        // SAFETY: On queue pairs for datagrams, all requests have this structure around them. The
        // handle is alive during the call.
        unsafe {
            let ud = &*raw.cast::<bindings::ib_ud_wr>();
            (!ud.ah.is_null()).then(|| Destination {
                ah: Ah::from_raw(ud.ah),
                qpn: ud.remote_qpn,
                qkey: ud.remote_qkey,
            })
        }
    }

    /// It completes with a completion even on success.
    pub fn is_signaled(&self) -> bool {
        self.has(bindings::ib_send_flags_IB_SEND_SIGNALED)
    }

    /// Its receiver gets a solicited event.
    pub fn is_solicited(&self) -> bool {
        self.has(bindings::ib_send_flags_IB_SEND_SOLICITED)
    }

    /// It begins when all reads and atomics before it have ended.
    pub fn is_fenced(&self) -> bool {
        self.has(bindings::ib_send_flags_IB_SEND_FENCE)
    }

    /// Its data are to be taken when it is posted ([`inline`](Self::inline)).
    pub fn is_inline(&self) -> bool {
        self.has(bindings::ib_send_flags_IB_SEND_INLINE)
    }

    /// The scatter/gather list.
    pub fn sges(&self) -> &'a [Sge] {
        // SAFETY: The user says so, and keeps the list during the call.
        unsafe { sges(self.raw.sg_list, self.raw.num_sge) }
    }

    /// Copies the data of a request with inline data to the start of `to`, and says how many bytes
    /// there are.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the data are longer than `to`, or not inline.
    pub fn inline(&self, to: &mut [u8]) -> Result<usize> {
        if !self.is_inline() {
            return Err(EINVAL);
        }
        let mut done = 0usize;
        for sge in self.sges() {
            let length = sge.length() as usize;
            let end = done.checked_add(length).ok_or(EINVAL)?;
            let part = to.get_mut(done..end).ok_or(EINVAL)?;
            let from = ptr::with_exposed_provenance::<u8>(sge.addr() as usize);
            // SAFETY: Entries of inline data name bytes by kernel addresses, and the user keeps
            // them during the call. `part` has as many bytes, which are ours alone.
            unsafe { copy_racing(part.as_mut_ptr(), from, length) };
            done = end;
        }
        Ok(done)
    }
}

/// A list of send requests that are posted at once.
pub struct SendRequests<'a, D> {
    /// The request that was handed out last, or the first.
    current: *const bindings::ib_send_wr,
    next: *const bindings::ib_send_wr,
    is_datagram: bool,
    _lent: PhantomData<&'a ()>,
    _driver: PhantomData<fn() -> D>,
}

impl<'a, D: Driver> Iterator for SendRequests<'a, D> {
    type Item = SendRequest<'a, D>;

    fn next(&mut self) -> Option<SendRequest<'a, D>> {
        // SAFETY: The list is valid during the call, and so for `'a`.
        let raw = unsafe { self.next.as_ref() }?;
        self.current = raw;
        self.next = raw.next;
        Some(SendRequest {
            raw,
            is_datagram: self.is_datagram,
            _driver: PhantomData,
        })
    }
}

/// A receive request: `struct ib_recv_wr`.
pub struct RecvRequest<'a>(&'a bindings::ib_recv_wr);

impl<'a> RecvRequest<'a> {
    /// The number that its completion gets.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Whichever of the union's fields is there, this number stands for it.
        unsafe { *self.0.__bindgen_anon_1.wr_id.as_ref() }
    }

    /// The scatter/gather list.
    pub fn sges(&self) -> &'a [Sge] {
        // SAFETY: The user says so, and keeps the list during the call.
        unsafe { sges(self.0.sg_list, self.0.num_sge) }
    }
}

/// A list of receive requests that are posted at once.
pub struct RecvRequests<'a> {
    /// The request that was handed out last, or the first.
    current: *const bindings::ib_recv_wr,
    next: *const bindings::ib_recv_wr,
    _lent: PhantomData<&'a ()>,
}

impl<'a> Iterator for RecvRequests<'a> {
    type Item = RecvRequest<'a>;

    fn next(&mut self) -> Option<RecvRequest<'a>> {
        // SAFETY: The list is valid during the call, and so for `'a`.
        let raw = unsafe { self.next.as_ref() }?;
        self.current = raw;
        self.next = raw.next;
        Some(RecvRequest(raw))
    }
}

/// Runs `post` with a list of send requests; if it fails, `bad` is the request that was handed out
/// last, and the first one if none was.
///
/// # Errors
///
/// `EOPNOTSUPP` for the queue of a program (`is_user`): it posts to memory of its own, and here
/// addresses are taken for the kernel's. Else what `post` answers.
///
/// # Safety
///
/// `first` is a valid list of requests, which, if `is_datagram`, have a `struct ib_ud_wr` around
/// them with handles of devices of the driver `D`. `bad` may be written to.
pub(crate) unsafe fn post_send<D: Driver>(
    first: *const bindings::ib_send_wr,
    bad: *mut *const bindings::ib_send_wr,
    is_user: bool,
    is_datagram: bool,
    post: impl FnOnce(&mut SendRequests<'_, D>) -> Result,
) -> Result {
    let mut requests = SendRequests {
        current: first,
        next: first,
        is_datagram,
        _lent: PhantomData,
        _driver: PhantomData,
    };
    let posted = match is_user {
        true => Err(EOPNOTSUPP),
        false => post(&mut requests),
    };
    posted.inspect_err(|_| {
        // SAFETY: By the requirements of this function.
        unsafe { *bad = requests.current };
    })
}

/// As [`post_send`], for receive requests.
///
/// # Safety
///
/// `first` is a valid list of requests, and `bad` may be written to.
pub(crate) unsafe fn post_recv(
    first: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
    is_user: bool,
    post: impl FnOnce(&mut RecvRequests<'_>) -> Result,
) -> Result {
    let mut requests = RecvRequests {
        current: first,
        next: first,
        _lent: PhantomData,
    };
    let posted = match is_user {
        true => Err(EOPNOTSUPP),
        false => post(&mut requests),
    };
    posted.inspect_err(|_| {
        // SAFETY: By the requirements of this function.
        unsafe { *bad = requests.current };
    })
}
