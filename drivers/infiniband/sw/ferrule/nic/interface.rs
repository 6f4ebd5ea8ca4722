// SPDX-License-Identifier: GPL-2.0

//! The interface of the PCI function: all that its driver and the device share.
//! Documentation/nic.md is its datasheet.
//!
//! The driver and `ferrule-nic` compile this same file. All values are little-endian. A reserved
//! field is zero; the device refuses a command with another value there.

use core::ffi::CStr;

use zerocopy::byteorder::little_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// PCI identity.
pub mod id {
    /// Vendor: the range that may be used without registration.
    pub const VENDOR: u16 = 0x1af4;
    /// Device, of that range.
    pub const DEVICE: u16 = 0x10f1;
    /// Subsystem vendor.
    pub const SUBSYSTEM_VENDOR: u16 = 0x1af4;
    /// Subsystem: tells the function from others that use the same device number.
    pub const SUBSYSTEM: u16 = 0x4645;
}

/// Registers, by their offsets in BAR0. Each has 4 bytes.
pub mod register {
    /// Read: [`MAGIC_VALUE`](super::MAGIC_VALUE).
    pub const MAGIC: usize = 0x00;
    /// Read: [`VERSION_VALUE`](super::VERSION_VALUE).
    pub const VERSION: usize = 0x04;
    /// Read: the bits of [`feature`](super::feature).
    pub const FEATURES: usize = 0x08;
    /// Read: the bits of [`status`](super::status).
    pub const STATUS: usize = 0x0c;
    /// Write 1: resets all but the configuration space.
    pub const RESET: usize = 0x10;
    /// Read: the number of MSI-X vectors.
    pub const VECTORS: usize = 0x14;
    /// Read: the first four bytes of the MAC address of the network device that the function
    /// belongs to; 0 without one.
    pub const MAC_LOW: usize = 0x18;
    /// Read: the last two bytes of it.
    pub const MAC_HIGH: usize = 0x1c;
    /// Both: the address for the memory check, in two halves.
    pub const CHECK_ADDRESS: usize = 0x20;
    /// Both: the nonce of the memory check, in two halves.
    pub const CHECK_NONCE: usize = 0x28;
    /// Both: a write of any value runs the memory check; a read gives its result.
    pub const CHECK: usize = 0x30;
    /// Write: raises the MSI-X vector of this number, for tests of a driver.
    pub const RAISE: usize = 0x34;
    /// Both: the address of the command area, in two halves:
    /// [`COMMAND_AREA_SIZE`](super::COMMAND_AREA_SIZE) bytes.
    pub const COMMAND_ADDRESS: usize = 0x40;
    /// Write: executes the command in the command area; the value is its tag, never 0. Read: the
    /// tag of the command that was answered last, 0 if there was none. A read is answered after all
    /// commands that were written before it.
    pub const COMMAND: usize = 0x48;
    /// Write: serves the context of this number, which has rung while the device slept, and sets
    /// its `sleeping` anew unless the device stays awake.
    pub const KICK: usize = 0x4c;
}

/// "FRUL", as bytes in memory.
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"FRUL");

/// The version of the registers and of the commands.
pub const VERSION_VALUE: u32 = 4;

/// Bits of [`register::FEATURES`].
pub mod feature {
    /// The memory check.
    pub const CHECK: u32 = 1 << 0;
    /// [`register::RAISE`](super::register::RAISE).
    pub const RAISE: u32 = 1 << 1;
    /// Commands.
    pub const COMMANDS: u32 = 1 << 2;
    /// Fast registration: [`mr_flag::FAST`](super::mr_flag::FAST).
    pub const FAST: u32 = 1 << 3;
    /// Extended reliable connections.
    pub const XRC: u32 = 1 << 4;
    /// A kick sets `sleeping` anew, so a driver may clear it before the kick.
    pub const KICK_ONCE: u32 = 1 << 5;
}

/// Bits of [`register::STATUS`].
pub mod status {
    /// The device is ready.
    pub const READY: u32 = 1 << 0;
    /// The last memory check found the memory shared.
    pub const CHECKED: u32 = 1 << 1;
}

/// Values of [`register::CHECK`].
pub mod check {
    /// The check has not run since the reset.
    pub const NEVER: u32 = 0;
    /// The device sees the memory that the driver sees.
    pub const SHARED: u32 = 1;
    /// The device sees other bytes than the driver has written.
    pub const DIFFERS: u32 = 2;
    /// The device cannot write the address.
    pub const NO_MEMORY: u32 = 3;
    /// The function is no bus master.
    pub const NO_MASTER: u32 = 4;
}

/// The most extents of a region for fast registration.
pub const MAX_EXTENTS: u32 = 512;

/// The granule of guest memory.
pub const PAGE_SIZE: usize = 4096;

/// Bytes of the command area: a page, with the command in its first half and the response in the
/// second.
pub const COMMAND_AREA_SIZE: usize = PAGE_SIZE;
/// Where the response begins.
pub const RESPONSE_OFFSET: usize = COMMAND_AREA_SIZE / 2;

/// No object, where one may be named.
pub const NONE: u32 = u32::MAX;

/// The commands: the values of [`CommandHeader::opcode`]. Behind each name stand its operands, and
/// its answer.
pub mod opcode {
    /// No operands; [`DeviceInfo`](super::DeviceInfo).
    pub const QUERY_DEVICE: u16 = 1;
    /// No operands; [`COUNTERS`](super::COUNTERS) and
    /// [`MULTICAST_COUNTERS`](super::MULTICAST_COUNTERS) values of 64 bits.
    pub const QUERY_COUNTERS: u16 = 2;
    /// [`CreateEq`](super::CreateEq); nothing.
    pub const CREATE_EQ: u16 = 3;
    /// [`Number`](super::Number), the vector; nothing.
    pub const DESTROY_EQ: u16 = 4;
    /// [`SetGid`](super::SetGid); nothing.
    pub const SET_GID: u16 = 5;
    /// [`Number`](super::Number), the path MTU of the port by `enum ib_mtu`; nothing.
    pub const SET_MTU: u16 = 6;
    /// [`OpenContext`](super::OpenContext); [`Number`](super::Number).
    pub const OPEN_CONTEXT: u16 = 7;
    /// [`Number`](super::Number); nothing. The context's queue pairs end their work with flush
    /// errors, and it takes no more.
    pub const QUIESCE_CONTEXT: u16 = 8;
    /// [`Number`](super::Number); nothing.
    pub const CLOSE_CONTEXT: u16 = 9;
    /// No operands; [`Number`](super::Number).
    pub const ALLOC_PD: u16 = 10;
    /// [`Number`](super::Number); nothing.
    pub const DEALLOC_PD: u16 = 11;
    /// [`CreateAh`](super::CreateAh); [`Number`](super::Number).
    pub const CREATE_AH: u16 = 12;
    /// [`Number`](super::Number); nothing.
    pub const DESTROY_AH: u16 = 13;
    /// [`RegMr`](super::RegMr); [`Number`](super::Number), the key.
    pub const REG_MR: u16 = 14;
    /// [`ReregMr`](super::ReregMr); nothing.
    pub const REREG_MR: u16 = 15;
    /// [`Number`](super::Number), the key; [`MrInfo`](super::MrInfo).
    pub const QUERY_MR: u16 = 16;
    /// [`Number`](super::Number), the key; nothing.
    pub const DEREG_MR: u16 = 17;
    /// [`AllocMw`](super::AllocMw); [`Number`](super::Number), the key.
    pub const ALLOC_MW: u16 = 18;
    /// [`Number`](super::Number), the key; nothing.
    pub const DEALLOC_MW: u16 = 19;
    /// [`CreateCq`](super::CreateCq); [`Number`](super::Number).
    pub const CREATE_CQ: u16 = 20;
    /// [`ResizeCq`](super::ResizeCq); [`Number`](super::Number), the index of the first completion
    /// in the new ring.
    pub const RESIZE_CQ: u16 = 21;
    /// [`Number`](super::Number); nothing.
    pub const DESTROY_CQ: u16 = 22;
    /// [`CreateSrq`](super::CreateSrq); [`Number`](super::Number).
    pub const CREATE_SRQ: u16 = 23;
    /// [`SetSrqLimit`](super::SetSrqLimit); nothing.
    pub const SET_SRQ_LIMIT: u16 = 24;
    /// [`Number`](super::Number); [`SrqInfo`](super::SrqInfo).
    pub const QUERY_SRQ: u16 = 25;
    /// [`Number`](super::Number); nothing.
    pub const DESTROY_SRQ: u16 = 26;
    /// [`CreateQp`](super::CreateQp); [`QpCreated`](super::QpCreated).
    pub const CREATE_QP: u16 = 27;
    /// [`ModifyQp`](super::ModifyQp); nothing.
    pub const MODIFY_QP: u16 = 28;
    /// [`Number`](super::Number); [`QpInfo`](super::QpInfo).
    pub const QUERY_QP: u16 = 29;
    /// [`Number`](super::Number); nothing.
    pub const DESTROY_QP: u16 = 30;
    /// [`Multicast`](super::Multicast); nothing.
    pub const ATTACH_MCAST: u16 = 31;
    /// [`Multicast`](super::Multicast); nothing.
    pub const DETACH_MCAST: u16 = 32;
    /// [`ResizeSrq`](super::ResizeSrq); nothing.
    pub const RESIZE_SRQ: u16 = 33;
    /// [`ModerateCq`](super::ModerateCq); nothing.
    pub const MODERATE_CQ: u16 = 34;
    /// [`Number`](super::Number); [`CqInfo`](super::CqInfo).
    pub const QUERY_CQ: u16 = 35;
    /// [`CreateXrcSrq`](super::CreateXrcSrq); [`Number`](super::Number).
    pub const CREATE_XRC_SRQ: u16 = 36;
}

macro_rules! layouts {
    ($($(#[$attr:meta])* $name:ident, $size:literal, { $($(#[$field_attr:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_attr])* pub $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

layouts! {
    /// The head of a command. Operands follow.
    CommandHeader, 16, {
        /// Of [`opcode`].
        opcode: U16,
        /// The version of the layout: 1.
        version: U16,
        /// Bytes of the operands.
        length: U32,
        /// Must equal what is written to [`register::COMMAND`].
        tag: U32,
        reserved: U32,
    }

    /// The head of a response. The command's answer follows, if the status is 0.
    ResponseHeader, 16, {
        /// The command's tag.
        tag: U32,
        /// 0, or the error number.
        status: U32,
        /// Bytes that follow.
        length: U32,
        reserved: U32,
    }

    /// The name of an object.
    Number, 8, {
        number: U32,
        reserved: U32,
    }

    /// Bytes in pages of the guest's memory.
    ///
    /// `list` is a page of addresses: the last of its 512 words is the address of the next page of
    /// the list, 0 in the last, and the others are the addresses of pages, in order, as far as
    /// there are.
    PageList, 16, {
        list: U64,
        /// How many pages there are, each of [`PAGE_SIZE`].
        pages: U32,
        reserved: U32,
    }

    /// An entry of the list of a region for fast registration: bytes that follow each other in the
    /// guest's memory.
    Extent, 16, {
        address: U64,
        /// Bytes. 0: the list ends before this entry.
        length: U64,
    }

    /// How much there is for this function.
    DeviceInfo, 64, {
        max_qp: U32,
        max_cq: U32,
        max_srq: U32,
        max_pd: U32,
        max_mr: U32,
        max_mw: U32,
        max_ah: U32,
        max_context: U32,
        max_mcast_grp: U32,
        max_mcast_qp_attach: U32,
        /// Reads and atomics that a queue pair may have outstanding, in either direction.
        max_rd_atomic: U32,
        /// Bytes of the longest page list of a memory region, in pages.
        max_mr_pages: U32,
        /// The device's clock, in nanoseconds: that of completions' timestamps.
        clock: U64,
        reserved: [u8; 8],
    }

    /// An event queue: `depth` entries of [`Eqe`], and behind them [`EqCtrl`], at the next multiple
    /// of 64.
    CreateEq, 24, {
        /// The MSI-X vector, which is the event queue's number. That of vector 0 gets the events
        /// that are no completions.
        vector: U32,
        /// Entries: a power of two, at most 65536.
        depth: U32,
        area: PageList,
    }

    /// An entry of an event queue.
    Eqe, 16, {
        /// Of [`event`].
        kind: U32,
        /// The object's number.
        number: U32,
        /// The event: of `enum ib_event_type`; 0 for a completion.
        code: U32,
        /// As that of completions, and written last: 1 in the first lap over the queue, 0 in the
        /// second.
        phase: U32,
    }

    /// The part of an event queue that the driver writes.
    EqCtrl, 64, {
        /// Entries before this free-running index have been read.
        consumer: U32,
        reserved: [u8; 60],
    }

    /// An address of the port. One that another function has is refused (`EADDRINUSE`).
    SetGid, 24, {
        /// Its index in the port's table.
        index: U32,
        /// 0: there is none of this index any more.
        valid: U32,
        gid: [u8; 16],
    }

    /// The doorbell area and the status area, of `FERRULE_DB_AREA_SIZE` bytes each, zeroed.
    OpenContext, 32, {
        doorbell: PageList,
        status: PageList,
    }

    /// An address vector. The source address is that of `sgid_index`.
    AddressVector, 32, {
        dgid: [u8; 16],
        dmac: [u8; 6],
        sgid_index: u8,
        hop_limit: u8,
        /// 20 bits.
        flow_label: U32,
        traffic_class: u8,
        sl: u8,
        static_rate: u8,
        /// 1 if there is an address; 0 in a slot of [`CreateQp::destinations`] that has none.
        valid: u8,
    }

    CreateAh, 40, {
        pd: U32,
        reserved: U32,
        to: AddressVector,
    }

    RegMr, 48, {
        pd: U32,
        /// `enum ib_access_flags`.
        access: U32,
        /// The address of the first byte for its user.
        iova: U64,
        /// Bytes.
        length: U64,
        /// Where the first byte lies in the first page.
        offset: U32,
        /// Bits of [`mr_flag`].
        flags: U32,
        /// None with [`mr_flag::ALL`]; the list of extents with [`mr_flag::FAST`].
        memory: PageList,
    }

    /// A change of a memory region: what [`rereg`] names in `mask`.
    ReregMr, 56, {
        key: U32,
        mask: U32,
        change: RegMr,
    }

    MrInfo, 32, {
        iova: U64,
        length: U64,
        access: U32,
        /// Bits of [`mr_flag`].
        flags: U32,
        /// Not 0: memory windows are bound to it.
        has_windows: U32,
        /// The pieces in which its bytes lie, each contiguous.
        extents: U32,
    }

    AllocMw, 8, {
        pd: U32,
        /// 1 or 2.
        kind: U32,
    }

    /// A completion queue: its ring, zeroed, and its control words.
    CreateCq, 40, {
        /// Slots: a power of two.
        depth: U32,
        /// The event queue that its events go to; [`NONE`]: nowhere.
        eq: U32,
        ring: PageList,
        ctrl: PageList,
    }

    ResizeCq, 24, {
        cqn: U32,
        /// Slots: a power of two.
        depth: U32,
        ring: PageList,
    }

    CqInfo, 16, {
        /// Slots.
        depth: U32,
        /// Completions written so far.
        producer: U32,
        /// The consumer's index, as last read.
        consumer: U32,
        /// Not 0: a completion was lost for want of a slot.
        overrun: U32,
    }

    /// How long the events of a completion queue wait for more completions.
    ModerateCq, 8, {
        cqn: U32,
        /// Completions; with 0 or 1 no event waits.
        count: U16,
        /// Microseconds; with 0 no event waits.
        period: U16,
    }

    /// A ring of requests in an area.
    Ring, 16, {
        /// The first slot, in bytes from the start of the area.
        offset: U32,
        /// Slots: a power of two, or 0 if there is no such ring.
        depth: U32,
        /// Bytes from one slot to the next.
        stride: U32,
        reserved: U32,
    }

    CreateSrq, 48, {
        pd: U32,
        /// Scatter entries of a request.
        max_sge: U32,
        ring: Ring,
        /// The control words, in bytes from the start of the area.
        ctrl: U32,
        reserved: U32,
        area: PageList,
    }

    /// A shared receive queue of extended reliable connections. Its number has 24 bits.
    CreateXrcSrq, 56, {
        srq: CreateSrq,
        /// The XRC domain: a number of the driver's own choice, below 65536.
        xrcd: U32,
        /// The completion queue of its requests.
        cq: U32,
    }

    SetSrqLimit, 8, {
        number: U32,
        limit: U32,
    }

    /// The area has the producer index and the requests that wait, at the places of their indices.
    ResizeSrq, 48, {
        number: U32,
        /// The limit that it is to have; [`NONE`]: the one that it has.
        limit: U32,
        ring: Ring,
        /// The control words, in bytes from the start of the area.
        ctrl: U32,
        reserved: U32,
        area: PageList,
    }

    SrqInfo, 16, {
        max_wr: U32,
        max_sge: U32,
        limit: U32,
        reserved: U32,
    }

    /// The capacities of a queue pair.
    Capabilities, 20, {
        max_send_wr: U32,
        max_recv_wr: U32,
        max_send_sge: U32,
        max_recv_sge: U32,
        max_inline: U32,
    }

    CreateQp, 120, {
        context: U32,
        /// Of a target of XRC, the XRC domain.
        pd: U32,
        /// Of [`qp_type`].
        qp_type: U32,
        /// Bits of [`qp_flag`].
        flags: U32,
        /// [`NONE`] for a target of XRC.
        send_cq: U32,
        /// [`NONE`] for either side of XRC.
        recv_cq: U32,
        /// Or [`NONE`].
        srq: U32,
        cap: Capabilities,
        sq: Ring,
        rq: Ring,
        /// The control words, in bytes from the start of the area.
        ctrl: U32,
        /// One [`AddressVector`] a slot of the send queue, in bytes from the start of the area, by
        /// which the driver's own datagrams are addressed; [`NONE`]: those that requests name by
        /// their handles.
        destinations: U32,
        area: PageList,
        reserved: [u8; 16],
    }

    QpCreated, 16, {
        /// The number: 1 for the port's queue pair for general services.
        number: U32,
        generation: U32,
        /// The doorbell that rings it.
        doorbell: U32,
        reserved: U32,
    }

    /// The attributes of a queue pair, as `struct ib_qp_attr` has them.
    QpAttributes, 72, {
        state: U32,
        cur_state: U32,
        en_sqd_async_notify: U32,
        access: U32,
        pkey_index: U32,
        port: U32,
        qkey: U32,
        path_mtu: U32,
        timeout: U32,
        retry_cnt: U32,
        rnr_retry: U32,
        rq_psn: U32,
        sq_psn: U32,
        max_rd_atomic: U32,
        max_dest_rd_atomic: U32,
        min_rnr_timer: U32,
        dest_qpn: U32,
        /// The attributes that are valid: of `enum ib_qp_attr_mask`. An answer has all.
        mask: U32,
    }

    ModifyQp, 112, {
        number: U32,
        reserved: U32,
        attributes: QpAttributes,
        /// Valid with `IB_QP_AV`.
        to: AddressVector,
    }

    QpInfo, 152, {
        attributes: QpAttributes,
        /// Its address; valid with `IB_QP_AV` in the mask.
        to: AddressVector,
        /// In state SQD: requests that were begun have not ended.
        sq_draining: U32,
        /// Of [`qp_type`].
        qp_type: U32,
        /// Bits of [`qp_flag`].
        flags: U32,
        cap: Capabilities,
        sq_consumer: U32,
        rq_consumer: U32,
        reserved: [u8; 8],
    }

    Multicast, 24, {
        number: U32,
        reserved: U32,
        gid: [u8; 16],
    }
}

/// The objects of events: the values of [`Eqe::kind`].
pub mod event {
    /// A completion queue that was armed has new completions: at most once for each arm.
    pub const COMPLETION: u32 = 1;
    /// A completion queue.
    pub const CQ: u32 = 2;
    /// A queue pair.
    pub const QP: u32 = 3;
    /// A shared receive queue.
    pub const SRQ: u32 = 4;
}

/// Bits of [`RegMr::flags`] and [`MrInfo::flags`].
pub mod mr_flag {
    /// All of the guest's memory, by its own addresses: `iova` and `offset` are 0, `length` is all
    /// ones.
    pub const ALL: u32 = 1 << 0;
    /// The pages may be written to.
    pub const WRITABLE: u32 = 1 << 1;
    /// It opens nothing until a request registers it: `memory` are the pages of a list of
    /// [`Extent`](super::Extent)s, of `length` bytes, which the device reads with each such
    /// request. `iova`, `offset` and `access` are 0, and there is no other flag.
    pub const FAST: u32 = 1 << 2;
}

/// Bits of [`QpAttributes::mask`](QpAttributes): those of `enum ib_qp_attr_mask`.
pub mod qp_mask {
    /// `state`.
    pub const STATE: u32 = 1 << 0;
    /// `cur_state`.
    pub const CUR_STATE: u32 = 1 << 1;
    /// `en_sqd_async_notify`.
    pub const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    /// `access`.
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    /// `pkey_index`.
    pub const PKEY_INDEX: u32 = 1 << 4;
    /// `port`.
    pub const PORT: u32 = 1 << 5;
    /// `qkey`.
    pub const QKEY: u32 = 1 << 6;
    /// The address, beside the attributes.
    pub const AV: u32 = 1 << 7;
    /// `path_mtu`.
    pub const PATH_MTU: u32 = 1 << 8;
    /// `timeout`.
    pub const TIMEOUT: u32 = 1 << 9;
    /// `retry_cnt`.
    pub const RETRY_CNT: u32 = 1 << 10;
    /// `rnr_retry`.
    pub const RNR_RETRY: u32 = 1 << 11;
    /// `rq_psn`.
    pub const RQ_PSN: u32 = 1 << 12;
    /// `max_rd_atomic`.
    pub const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    /// An alternate path, which has no field: the device has none.
    pub const ALT_PATH: u32 = 1 << 14;
    /// `min_rnr_timer`.
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    /// `sq_psn`.
    pub const SQ_PSN: u32 = 1 << 16;
    /// `max_dest_rd_atomic`.
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    /// The state of path migration, without a field as well.
    pub const PATH_MIG_STATE: u32 = 1 << 18;
    /// Sizes, without a field: queues keep theirs.
    pub const CAP: u32 = 1 << 19;
    /// `dest_qpn`.
    pub const DEST_QPN: u32 = 1 << 20;
    /// A limit of the rate, without a field.
    pub const RATE_LIMIT: u32 = 1 << 25;
}

/// Bits of [`ReregMr::mask`](ReregMr).
pub mod rereg {
    /// `pd`.
    pub const PD: u32 = 1 << 0;
    /// `access`.
    pub const ACCESS: u32 = 1 << 1;
    /// The memory: all other fields.
    pub const MEMORY: u32 = 1 << 2;
}

/// Transport services.
pub mod qp_type {
    /// Reliable connection.
    pub const RC: u32 = 1;
    /// Unreliable connection.
    pub const UC: u32 = 2;
    /// Unreliable datagram.
    pub const UD: u32 = 3;
    /// The side of an extended reliable connection that sends requests.
    pub const XRC_INI: u32 = 4;
    /// The side that takes them.
    pub const XRC_TGT: u32 = 5;
}

/// Bits of [`CreateQp::flags`] and [`QpInfo::flags`].
pub mod qp_flag {
    /// Every send request completes with a completion.
    pub const SQ_SIG_ALL: u32 = 1 << 0;
    /// The port's queue pair for general services.
    pub const GSI: u32 = 1 << 1;
    /// Its user is the guest's kernel: requests may register memory.
    pub const PRIVILEGED: u32 = 1 << 2;
}

/// The counters of [`opcode::QUERY_COUNTERS`], in the order in which they are answered, by their
/// names in `rdma statistic`.
pub const COUNTERS: [&CStr; 37] = [
    c"send_requests",
    c"send_errors",
    c"responder_errors",
    c"flushed_requests",
    c"rcvd_messages",
    c"message_bytes",
    c"completions",
    c"completion_overruns",
    c"receiver_not_ready",
    c"sequence_errors",
    c"retries",
    c"unanswered",
    c"probes",
    c"dropped",
    c"stray_doorbells",
    c"sent_pkts",
    c"sent_bytes",
    c"rcvd_pkts",
    c"rcvd_bytes",
    c"local_pkts",
    c"local_bytes",
    c"send_waits",
    c"malformed_short",
    c"malformed_version",
    c"malformed_opcode",
    c"malformed_length",
    c"icrc_errors",
    c"pkey_errors",
    c"unknown_queue_pairs",
    c"misdirected",
    c"duplicate_request",
    c"naks_sent",
    c"naks_received",
    c"rcvd_ecn_marked",
    c"rcvd_cnps",
    c"handled_cnps",
    c"sent_cnps",
];

/// Values of [`opcode::QUERY_COUNTERS`] behind those: packets sent to a multicast group, and
/// received from one.
pub const MULTICAST_COUNTERS: usize = 2;
