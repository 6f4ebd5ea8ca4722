// SPDX-License-Identifier: GPL-2.0

//! The command channel of the function: one page, and one command at a time.
//!
//! The device executes a command within the write of its tag, and the read that follows is answered
//! after that. So there is nothing to wait for, and nothing to be told by an interrupt.

use kernel::{
    device::Bound,
    new_mutex,
    pci,
    prelude::*,
    sync::Mutex, //
};
use kernel_ext::dma::DmaArea;
use zerocopy::{
    byteorder::little_endian::U64,
    FromBytes,
    FromZeros,
    Immutable,
    IntoBytes, //
};

use super::{
    check,
    interface::{
        opcode,
        register,
        AllocMw,
        CommandHeader,
        CqInfo,
        CreateAh,
        CreateCq,
        CreateEq,
        CreateQp,
        CreateSrq,
        CreateXrcSrq,
        DeviceInfo,
        ModerateCq,
        ModifyQp,
        MrInfo,
        Multicast,
        Number,
        OpenContext,
        QpCreated,
        QpInfo,
        RegMr,
        ReregMr,
        ResizeCq,
        ResizeSrq,
        ResponseHeader,
        SetGid,
        SetSrqLimit,
        SrqInfo,
        COMMAND_AREA_SIZE,
        COUNTERS,
        MULTICAST_COUNTERS,
        RESPONSE_OFFSET, //
    },
    registers::Registers, //
};
use crate::backend::ring::new_area;

/// The version of all layouts.
const LAYOUT_VERSION: u16 = 1;

/// The highest error number.
const MAX_ERRNO: u32 = 4095;

/// A command: the operands and the answer that belong to an opcode.
pub(super) trait Command {
    const OPCODE: u16;
    type Operands: IntoBytes + Immutable;
    type Answer: FromBytes + IntoBytes;
}

macro_rules! commands {
    ($($name:ident = $opcode:ident, $operands:ty => $answer:ty;)*) => {$(
        #[doc = concat!("[`opcode::", stringify!($opcode), "`].")]
        pub(super) struct $name;

        impl Command for $name {
            const OPCODE: u16 = opcode::$opcode;
            type Operands = $operands;
            type Answer = $answer;
        }
    )*};
}

commands! {
    QueryDevice = QUERY_DEVICE, () => DeviceInfo;
    QueryCounters = QUERY_COUNTERS, () => [U64; COUNTERS.len() + MULTICAST_COUNTERS];
    AddEq = CREATE_EQ, CreateEq => ();
    ChangeGid = SET_GID, SetGid => ();
    SetMtu = SET_MTU, Number => ();
    AddContext = OPEN_CONTEXT, OpenContext => Number;
    QuiesceContext = QUIESCE_CONTEXT, Number => ();
    RemoveContext = CLOSE_CONTEXT, Number => ();
    AddPd = ALLOC_PD, () => Number;
    RemovePd = DEALLOC_PD, Number => ();
    AddAh = CREATE_AH, CreateAh => Number;
    RemoveAh = DESTROY_AH, Number => ();
    AddMr = REG_MR, RegMr => Number;
    ChangeMr = REREG_MR, ReregMr => ();
    QueryMr = QUERY_MR, Number => MrInfo;
    RemoveMr = DEREG_MR, Number => ();
    AddMw = ALLOC_MW, AllocMw => Number;
    RemoveMw = DEALLOC_MW, Number => ();
    AddCq = CREATE_CQ, CreateCq => Number;
    ChangeCq = RESIZE_CQ, ResizeCq => Number;
    QueryCq = QUERY_CQ, Number => CqInfo;
    HoldCqEvents = MODERATE_CQ, ModerateCq => ();
    RemoveCq = DESTROY_CQ, Number => ();
    AddSrq = CREATE_SRQ, CreateSrq => Number;
    AddXrcSrq = CREATE_XRC_SRQ, CreateXrcSrq => Number;
    ChangeSrq = SET_SRQ_LIMIT, SetSrqLimit => ();
    ReplaceSrq = RESIZE_SRQ, ResizeSrq => ();
    QuerySrq = QUERY_SRQ, Number => SrqInfo;
    RemoveSrq = DESTROY_SRQ, Number => ();
    AddQp = CREATE_QP, CreateQp => QpCreated;
    ChangeQp = MODIFY_QP, ModifyQp => ();
    QueryQp = QUERY_QP, Number => QpInfo;
    RemoveQp = DESTROY_QP, Number => ();
    AttachMcast = ATTACH_MCAST, Multicast => ();
    DetachMcast = DETACH_MCAST, Multicast => ();
}

impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Number {
            number: number.into(),
            reserved: 0.into(),
        }
    }
}

/// The command channel. Dropping it resets the function.
#[pin_data(PinnedDrop)]
pub(super) struct Channel {
    pub(super) registers: Registers,
    pub(super) page: DmaArea,
    /// The tag of the last command; held while one is executed.
    #[pin]
    tag: Mutex<u32>,
}

impl Channel {
    /// Opens the channel of a function that has just been reset, and that sees this machine's
    /// memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; those of the memory check.
    pub(super) fn open(
        function: &pci::Device<Bound>,
        registers: Registers,
    ) -> Result<impl PinInit<Self>> {
        let page = DmaArea::new(function.as_ref(), new_area(COMMAND_AREA_SIZE)?)?;
        if let Err(error) = check::run(function, &registers, &page) {
            registers.release(page);
            return Err(error);
        }
        let address = page.pages().next().ok_or(EINVAL)?;
        registers.write_halves(register::COMMAND_ADDRESS, address);
        Ok(pin_init!(Channel {
            registers,
            page,
            tag <- new_mutex!(0, "Channel::tag"),
        }))
    }

    /// Executes a command. Process context; the device answers within a bounded time.
    ///
    /// # Errors
    ///
    /// `EIO` if the function is gone, or answers what it must not; those of the device.
    pub(super) fn execute<C: Command>(&self, operands: &C::Operands) -> Result<C::Answer> {
        let (answer, ()) = self.hand_over::<C, _>(operands, (), ())?;
        Ok(answer)
    }

    /// Executes a command that names `memory` by a list, and returns the memory with the answer.
    /// Process context.
    ///
    /// # Errors
    ///
    /// Those of [`Channel::execute`]. Memory and list are dropped then, or leaked if a device that
    /// is late may execute the command still.
    pub(super) fn hand_over<C: Command, M>(
        &self,
        operands: &C::Operands,
        memory: M,
        list: impl Sized,
    ) -> Result<(C::Answer, M)> {
        let mut tag = self.tag.lock();
        if self.registers.are_gone() {
            return Err(EIO);
        }
        // Neither 0 nor all ones, which the register has without an answer.
        *tag = *tag % (u32::MAX - 1) + 1;
        match self.request::<C>(operands, *tag) {
            Ok(answer) => Ok((answer, memory)),
            Err(error) => {
                self.registers.release((memory, list));
                Err(error)
            }
        }
    }

    /// Executes the command of a tag. The caller holds the lock.
    fn request<C: Command>(&self, operands: &C::Operands, tag: u32) -> Result<C::Answer> {
        let area = self.page.area();
        let bytes = operands.as_bytes();
        let header = CommandHeader {
            opcode: C::OPCODE.into(),
            version: LAYOUT_VERSION.into(),
            length: (bytes.len() as u32).into(),
            tag: tag.into(),
            reserved: 0.into(),
        };
        area.write_bytes(0, header.as_bytes())?;
        area.write_bytes(size_of::<CommandHeader>(), bytes)?;
        self.registers.write(register::COMMAND, tag);
        if self.registers.read(register::COMMAND)? != tag {
            // Somebody may have reset the function, which then has no command area.
            self.registers.look();
            return Err(EIO);
        }
        let mut header = [0; size_of::<ResponseHeader>()];
        area.read_bytes(RESPONSE_OFFSET, &mut header)?;
        let header = ResponseHeader::read_from_bytes(&header).map_err(|_| EIO)?;
        if header.tag.get() != tag || header.reserved.get() != 0 {
            return Err(EIO);
        }
        match header.status.get() {
            0 => (),
            status @ 1..=MAX_ERRNO => return Err(Error::from_errno(-(status as c_int))),
            _ => return Err(EIO),
        }
        let mut answer = C::Answer::new_zeroed();
        let bytes = answer.as_mut_bytes();
        if header.length.get() as usize != bytes.len() {
            return Err(EIO);
        }
        area.read_bytes(RESPONSE_OFFSET + size_of::<ResponseHeader>(), bytes)?;
        Ok(answer)
    }
}

#[pinned_drop]
impl PinnedDrop for Channel {
    fn drop(self: Pin<&mut Self>) {
        if !self.registers.reset() {
            // Answers may be written there late.
            core::mem::forget(self.page.area().clone());
        }
    }
}
