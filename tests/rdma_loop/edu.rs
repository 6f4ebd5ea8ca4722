// SPDX-License-Identifier: GPL-2.0

//! The engine of QEMU's device for education, `edu`: it copies between memory and a buffer of its
//! own, and interrupts when it has done so.

use kernel::{
    device,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    dma::{
        DmaArea,
        PageList,
        DMA_PAGE, //
    },
    mm::SharedArea,
    new_waitqueue,
    pci::{
        Bar,
        Handler, //
    },
    sync::WaitQueue, //
};
use rdma::umem::Umem;

/// Registers.
const INTERRUPTED: usize = 0x24;
const RAISE: usize = 0x60;
const ACKNOWLEDGE: usize = 0x64;
const SOURCE: usize = 0x80;
const DESTINATION: usize = 0x88;
const COUNT: usize = 0x90;
const COMMAND: usize = 0x98;
pub(super) const REGISTERS: usize = 0x100;

/// Bits of the command: to start, to copy to memory, to interrupt at the end.
const START: u32 = 1;
const TO_MEMORY: u32 = 2;
const INTERRUPT: u32 = 4;

/// The bit that the end of a copy sets in `INTERRUPTED`, and one that only we raise.
const COPIED: u32 = 0x100;
const RAISED: u32 = 1;

/// The buffer, as the engine addresses it. It has space for a page.
const BUFFER: u32 = 0x4_0000;

/// The device.
#[pin_data]
pub(super) struct Edu {
    bar: Bar,
    /// The interrupts that came, and were not waited for yet.
    came: Atomic<u32>,
    #[pin]
    comes: WaitQueue,
    /// The holder owns the buffer.
    #[pin]
    buffer: Mutex<()>,
}

impl Handler for Edu {
    fn handle(&self, _vector: u32) {
        let Ok(bits) = self.bar.read32(INTERRUPTED) else {
            return;
        };
        // Nobody would be told of an error, for which there is no reason as long as there are
        // interrupts.
        let _ = self.bar.write32(ACKNOWLEDGE, bits);
        self.came.fetch_add(bits, Full);
        self.comes.wake_up();
    }
}

impl Edu {
    pub(super) fn new(bar: Bar) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Edu {
                bar,
                came: Atomic::new(0),
                comes <- new_waitqueue!("Edu::comes"),
                buffer <- new_mutex!((), "Edu::buffer"),
            }),
            GFP_KERNEL,
        )
    }

    /// Waits for an interrupt of this kind.
    fn wait_for(&self, bit: u32) {
        self.comes.wait(|| self.came.load(Acquire) & bit != 0);
        self.came.fetch_sub(bit, Full);
    }

    /// Does one copy.
    fn run(&self, from: u64, to: u64, len: usize, direction: u32) -> Result {
        // Of longer addresses the device takes only half in one access.
        self.bar.write32(SOURCE, u32::try_from(from)?)?;
        self.bar.write32(DESTINATION, u32::try_from(to)?)?;
        self.bar.write32(COUNT, u32::try_from(len)?)?;
        self.bar.write32(COMMAND, START | direction | INTERRUPT)?;
        self.wait_for(COPIED);
        Ok(())
    }

    /// Copies up to a page between DMA addresses.
    fn copy(&self, from: u64, to: u64, len: usize) -> Result {
        let _buffer = self.buffer.lock();
        self.run(from, BUFFER.into(), len, 0)?;
        self.run(BUFFER.into(), to, len, TO_MEMORY)
    }

    /// Copies from one memory to another.
    pub(super) fn copy_memory(
        &self,
        dst: &Umem,
        dst_off: u64,
        src: &Umem,
        src_off: u64,
        len: u64,
    ) -> Result {
        let inside =
            |umem: &Umem, off: u64| off.checked_add(len).is_some_and(|end| end <= umem.len());
        if !inside(dst, dst_off) || !inside(src, src_off) {
            return Err(EFAULT);
        }
        if !dst.writable() {
            return Err(EACCES);
        }
        let mut done = 0;
        while done < len {
            let (from, src_left) = place(src, src_off + done)?;
            let (to, dst_left) = place(dst, dst_off + done)?;
            let part = (len - done).min(src_left).min(dst_left);
            self.copy(from, to, part as usize)?;
            done += part;
        }
        Ok(())
    }

    /// Whether the device interrupts, and finds an area by the list of its pages.
    pub(super) fn check(&self, device: &device::Device<device::Bound>) -> Result {
        const LAST: usize = DMA_PAGE - size_of::<u64>();
        const ENTRIES: usize = LAST / size_of::<u64>();

        self.bar.write32(RAISE, RAISED)?;
        self.wait_for(RAISED);

        // One page more than a page of the list can name.
        let area = SharedArea::new((ENTRIES + 1) * DMA_PAGE)?;
        let mapped = DmaArea::new(device, Arc::new(area, GFP_KERNEL)?)?;
        let list = PageList::new(device, mapped.pages())?;
        let page = |index| mapped.pages().nth(index).ok_or(EINVAL);
        let area = mapped.area();
        self.copy(list.address(), page(0)?, DMA_PAGE)?;
        let next = area.load_u64(LAST)?;
        self.copy(next, page(1)?, DMA_PAGE)?;
        let found = list.len() as usize == ENTRIES + 1
            && area.load_u64(0)? == page(0)?
            && area.load_u64(LAST - size_of::<u64>())? == page(ENTRIES - 1)?
            && area.load_u64(DMA_PAGE)? == page(ENTRIES)?
            && area.load_u64(DMA_PAGE + LAST)? == 0;
        if found {
            Ok(())
        } else {
            Err(EIO)
        }
    }
}

/// The DMA address of the byte at `offset`, and how many bytes of its page are left.
fn place(umem: &Umem, offset: u64) -> Result<(u64, u64)> {
    const PAGE: u64 = DMA_PAGE as u64;

    let at = u64::from(umem.page_offset()) + offset;
    let page = (umem.dma_pages()?)
        .nth(usize::try_from(at / PAGE)?)
        .ok_or(EFAULT)?;
    Ok((page + at % PAGE, PAGE - at % PAGE))
}
