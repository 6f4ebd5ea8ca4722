// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that is paged on demand: no page is pinned, and each comes when it is used.
//!
//! A region has a table of the pages that are in memory (`page_table`), as hardware has. The kernel
//! tells before a page goes (`struct mmu_interval_notifier`), and then the page leaves the table
//! first. A caller that finds a page absent asks for it ([`Memory::page_in`]), and a work item of
//! the region faults it in, in process context.
//!
//! The table has no lock of its own. A driver accesses memory in sections of its own making, and
//! the table changes in between, which the driver arranges ([`Exclusive`]). So a page that is found
//! in a section is there until the section ends, and an access takes no lock.
//!
//! C headers: `include/linux/mmu_notifier.h`, `include/linux/hmm.h`.
//!
//! [`Memory::page_in`]: crate::Memory::page_in

use core::{
    cell::UnsafeCell,
    ptr::NonNull, //
};

use kernel::{
    container_of,
    error::to_result,
    mm::Mm,
    new_work,
    page::{
        page_align,
        PAGE_MASK,
        PAGE_SHIFT, //
    },
    prelude::*,
    sync::Arc,
    types::{
        NotThreadSafe,
        Opaque, //
    },
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::boxed::boxed;

pub use crate::page_requests::Purpose;
use crate::{
    advice::Advice,
    bindings,
    page_requests::{
        Request,
        Requests, //
    },
    page_table::{
        chunk_end,
        PageTable,
        Pages,
        Spare,
        CHUNK, //
    },
    workqueues::FaultQueue, //
};

/// The end of the addresses of programs, none of which is in the upper half.
const LIMIT: usize = isize::MAX as usize & PAGE_MASK;

/// How often a fault is tried where the program's memory changes meanwhile.
const TRIES: u32 = 64;

/// A driver's way to change on-demand memory while nobody accesses it.
///
/// # Safety
///
/// [`exclusively`](Self::exclusively) calls `f` once before it returns, and never while another
/// such call is in its `f`. Nobody accesses memory that was made with this value meanwhile.
pub unsafe trait Exclusive: Send + Sync {
    /// Calls `f`. Process context; must not sleep, nor wait for memory, which may wait for this.
    fn exclusively(&self, f: &mut dyn FnMut());
}

/// While it lives, memory that this thread allocates is charged to the program of an address space.
/// Faults may run in a thread that is nobody's.
struct Charge(NotThreadSafe);

impl Charge {
    /// Process context, where no other one lives.
    fn to(mm: &Mm) -> Self {
        // SAFETY: The address space is borrowed; `drop` undoes it.
        unsafe { bindings::charge_begin(mm.as_raw()) };
        Self(NotThreadSafe)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // SAFETY: It was begun by this thread.
        unsafe { bindings::charge_end() };
    }
}

/// Whether bytes are in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// They are.
    Present,
    /// They are being brought in.
    Coming,
    /// They cannot be had, for what they were asked for.
    Gone,
}

/// The changing part of on-demand memory.
struct State {
    table: PageTable,
    requests: KBox<Requests>,
    /// The memory is not used any more.
    closed: bool,
}

/// On-demand memory of a program.
///
/// # Invariants
///
/// - `state` is accessed in an `f` of `exclusive`, or in an access to the memory.
/// - `notifier` has been inserted for all pages from `first` to before `end`. Each page of the
///   table is there until the notifier's callback has returned.
#[pin_data(PinnedDrop)]
pub struct OnDemand {
    state: UnsafeCell<State>,
    exclusive: Arc<dyn Exclusive>,
    /// The address of the first byte in the program.
    start: usize,
    first: usize,
    end: usize,
    faults: FaultQueue,
    #[pin]
    work: Work<OnDemand>,
    #[pin]
    notifier: Opaque<bindings::mmu_interval_notifier>,
}

// SAFETY: Nothing here belongs to a thread.
unsafe impl Send for OnDemand {}

// SAFETY: By the type invariants, `state` is accessed by one thread at a time; the notifier has a
// lock.
unsafe impl Sync for OnDemand {}

impl_has_work! {
    impl HasWork<Self> for OnDemand { self.work }
}

static NOTIFIER: bindings::mmu_interval_notifier_ops = {
    let mut ops: bindings::mmu_interval_notifier_ops = pin_init::zeroed();
    ops.invalidate = Some(invalidate);
    ops
};

impl OnDemand {
    /// Memory of the calling process: `len` bytes at `start`, or as far as addresses go.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, or if the caller is a thread of the kernel; `EOVERFLOW` if the end is
    /// beyond that of addresses; `EOPNOTSUPP` without [`Workqueues`](crate::Workqueues); `ENOMEM`.
    pub(crate) fn new(start: u64, len: u64, exclusive: Arc<dyn Exclusive>) -> Result<Arc<Self>> {
        let current = current!();
        let mm = current.mm().ok_or(EINVAL)?;
        // SAFETY: The memory is for a region of a device of the module.
        let faults = unsafe { FaultQueue::new(mm) }?;
        let mm = mm.as_raw();
        let start = usize::try_from(start)?;
        let first = start & PAGE_MASK;
        let end = match (start, len) {
            (0, u64::MAX) => LIMIT,
            _ => start
                .checked_add(usize::try_from(len)?)
                .and_then(page_align)
                .filter(|end| *end <= LIMIT)
                .ok_or(EOVERFLOW)?,
        };
        if len == 0 || end <= first {
            return Err(EINVAL);
        }
        let state = State {
            table: PageTable::new(),
            requests: boxed(Requests::new, GFP_KERNEL_ACCOUNT)?,
            closed: false,
        };
        let (low, length) = (first, end - first);
        let made = try_pin_init!(Self {
            state: UnsafeCell::new(state),
            exclusive,
            start,
            first,
            end,
            faults,
            work <- new_work!("OnDemand::work"),
            // INVARIANT: It is inserted. The callback may run at once, and uses what has been
            // initialised above.
            notifier <- Opaque::try_ffi_init(|slot: *mut bindings::mmu_interval_notifier| {
                // SAFETY: The slot stays where it is until it is removed, and the process has the
                // address space.
                to_result(unsafe {
                    bindings::mmu_interval_notifier_insert(slot, mm, low, length, &NOTIFIER)
                })
            }),
        }? Error);
        Arc::pin_init(made, GFP_KERNEL_ACCOUNT)
    }

    /// Calls `f` with the state while nobody accesses the memory.
    fn exclusively<R>(&self, f: impl FnOnce(&mut State) -> R) -> Result<R> {
        let mut f = Some(f);
        let mut result = None;
        self.exclusive.exclusively(&mut || {
            if let Some(f) = f.take() {
                // SAFETY: By the requirements of `Exclusive`, nobody accesses the memory meanwhile,
                // and no other thread is here.
                result = Some(f(unsafe { &mut *self.state.get() }));
            }
        });
        result.ok_or(EFAULT)
    }

    /// Where the byte at `offset` is, and how many of `len` are there; `None` if it is absent.
    ///
    /// # Safety
    ///
    /// The caller accesses the memory: nobody is in an `f` of the [`Exclusive`], nor gets there
    /// before the caller has done with the bytes.
    #[inline]
    pub(crate) unsafe fn piece(
        &self,
        offset: u64,
        len: usize,
        write: bool,
    ) -> Option<(NonNull<u8>, usize)> {
        let addr = self.start.checked_add(usize::try_from(offset).ok()?)?;
        // SAFETY: By the requirements of this function; the reference ends with the call.
        let state = unsafe { &mut *self.state.get() };
        state.table.piece(addr, len, write)
    }

    /// Calls `piece` with the address and length of each contiguous piece of `len` bytes at
    /// `offset`, which uses them during its call alone.
    ///
    /// # Errors
    ///
    /// `EFAULT` if a page is absent. `piece` may have been called for bytes before it.
    ///
    /// # Safety
    ///
    /// As for [`OnDemand::piece`].
    pub(crate) unsafe fn for_each(
        &self,
        offset: u64,
        len: usize,
        write: bool,
        mut piece: impl FnMut(*mut u8, usize),
    ) -> Result {
        let (mut offset, mut left) = (offset, len);
        while left > 0 {
            // SAFETY: By the requirements of this function.
            let (at, len) = unsafe { self.piece(offset, left, write) }.ok_or(EFAULT)?;
            piece(at.as_ptr(), len);
            offset += len as u64;
            left -= len;
        }
        Ok(())
    }

    /// Asks for pages that are absent. Any context.
    ///
    /// # Safety
    ///
    /// As for [`OnDemand::piece`].
    #[cold]
    pub(crate) unsafe fn page_in(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        write: bool,
        asker: u64,
    ) -> Presence {
        let Some((from, to)) = self.range(offset, len) else {
            return Presence::Gone;
        };
        // SAFETY: By the requirements of this function; the reference ends with the call.
        let state = unsafe { &mut *self.state.get() };
        let Some(page) = state.table.first_absent(from, to, write) else {
            return Presence::Present;
        };
        if state.requests.take_refusal(page, write, asker) {
            return Presence::Gone;
        }
        let purpose = if write { Purpose::Write } else { Purpose::Read };
        state
            .requests
            .add(Request::new(page, to, purpose, Some(asker)));
        self.enqueue();
        Presence::Coming
    }

    /// The addresses in the program of `len` bytes at `offset`.
    fn range(&self, offset: u64, len: u64) -> Option<(usize, usize)> {
        let from = self.start.checked_add(usize::try_from(offset).ok()?)?;
        let to = from.checked_add(usize::try_from(len).ok()?)?;
        (to <= self.end).then_some((from & PAGE_MASK, to))
    }

    /// Lets the work item run.
    fn enqueue(self: &Arc<Self>) {
        // If it is queued already, it has yet to look at the requests.
        let _ = self.faults.queue().enqueue(self.clone());
    }

    /// Brings `len` bytes at `offset` in before they are used: now, or some time later. Process
    /// context.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the bytes are not all inside; if they are brought in now, also if there is no
    /// such memory, and those of `Advice::check_wanted()`.
    pub fn prefetch(self: &Arc<Self>, offset: u64, len: u64, advice: &Advice<'_>) -> Result {
        let (from, to) = self.range(offset, len).ok_or(EFAULT)?;
        if !advice.now {
            let request = Request::new(from, to, advice.purpose, None);
            // The region may go at the same time.
            self.exclusively(|state| {
                if !state.closed {
                    state.requests.add(request);
                }
            })?;
            self.enqueue();
            return Ok(());
        }
        let mut from = from;
        while from < to {
            advice.check_wanted()?;
            let until = to.min(chunk_end(from));
            self.fault(from, until, advice.purpose)
                .map_err(|error| match error {
                    EAGAIN | ENOMEM | EINTR => error,
                    _ => EFAULT,
                })?;
            from = until;
        }
        Ok(())
    }

    /// Brings pages of one chunk in, and others of the chunk that are in memory already. Process
    /// context.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the memory changes all the time; `ENOMEM`; `EINTR` if the calling process has
    /// been killed; any other if a page cannot be had.
    fn fault(&self, from: usize, to: usize, purpose: Purpose) -> Result {
        let notifier = self.notifier.get();
        // SAFETY: By the type invariants, the notifier was inserted, and so keeps the structure.
        let mm = unsafe { Mm::from_raw((*notifier).mm) };
        let _user = mm.mmget_not_zero().ok_or(EFAULT)?;
        let _charge = Charge::to(mm);
        let base = from / CHUNK * CHUNK;
        let first = base.max(self.first);
        let end = base.saturating_add(CHUNK).min(self.end);
        let wanted = (from & PAGE_MASK).max(first)..page_align(to).unwrap_or(end).min(end);
        let mut spare = Some(Spare::new(first)?);
        let mut pages = Pages::new()?;
        let pages = pages.first((end - first) >> PAGE_SHIFT);
        for _ in 0..TRIES {
            let mut seq = 0;
            // SAFETY: There is a user of the address space, the range is inside of that of the
            // notifier, there is a word for each page, and those to be brought in are some of them.
            let found = to_result(unsafe {
                bindings::paging_fault(
                    notifier,
                    first,
                    end,
                    wanted.start,
                    wanted.end,
                    purpose.raw(),
                    pages.as_mut_ptr(),
                    &mut seq,
                )
            });
            match found {
                Err(EBUSY) => continue,
                found => found?,
            }
            let is_whole = self.exclusively(|state| {
                // SAFETY: The notifier is valid. The callback sets the sequence number here as
                // well.
                if unsafe { bindings::mmu_interval_read_retry(notifier, seq) } {
                    return None;
                }
                if !state.closed {
                    // INVARIANT: The pages were there at `seq`, and nothing has gone since. The
                    // callback that takes them out comes here before one goes.
                    state.table.install(first, pages, &mut spare);
                    state.requests.forget_refusals(first, pages);
                }
                let write = purpose == Purpose::Write;
                Some(
                    purpose == Purpose::Present
                        || state.table.first_absent(from, to, write).is_none(),
                )
            })?;
            match is_whole {
                Some(true) => return Ok(()),
                // The kernel itself may not read the page.
                Some(false) => return Err(EFAULT),
                None => (),
            }
        }
        Err(EAGAIN)
    }

    /// The memory is used no more: nothing is brought in, and pages are forgotten. Process context.
    fn close(&self) {
        let _ = self.exclusively(|state| {
            state.closed = true;
            state.requests.clear();
        });
        self.forget(self.first, self.end, |_| ());
    }

    /// Forgets the pages from `from` to before `to`, chunk by chunk, in each after `f`.
    fn forget(&self, from: usize, to: usize, mut f: impl FnMut(&mut State)) {
        let mut next = Some(from);
        while let Some(from) = next {
            let cleared = self.exclusively(|state| {
                f(state);
                // SAFETY: By the type invariants, the pages of the table are there.
                unsafe { state.table.clear(from, to) }
            });
            // A chunk without pages is freed here.
            next = cleared.map_or(None, |(next, _spare)| next);
        }
    }
}

impl WorkItem for OnDemand {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let next = |state: &mut State| state.requests.next().filter(|_| !state.closed);
        while let Ok(Some((place, request))) = this.exclusively(next) {
            let until = request.step();
            let result = this.fault(request.from, until, request.purpose);
            let _ = this.exclusively(|state| state.requests.served(place, &request, until, result));
        }
    }
}

/// Before pages go.
///
/// # Safety
///
/// To be called by the kernel only, with the notifier of an [`OnDemand`] and a valid range.
unsafe extern "C" fn invalidate(
    notifier: *mut bindings::mmu_interval_notifier,
    range: *const bindings::mmu_notifier_range,
    seq: c_ulong,
) -> bool {
    let raw = notifier.cast::<Opaque<bindings::mmu_interval_notifier>>();
    // SAFETY: By the requirements of this function. The notifier is removed, and this waited for,
    // before the memory goes.
    let this = unsafe { &*container_of!(raw, OnDemand, notifier) };
    // SAFETY: By the requirements of this function.
    let (start, end) = unsafe { ((*range).start, (*range).end) };
    let mut is_first = true;
    this.forget(start.max(this.first), end.min(this.end), |_| {
        if core::mem::take(&mut is_first) {
            // SAFETY: The notifier is valid, and the number is read under exclusion, as it is set
            // here.
            unsafe { bindings::mmu_interval_set_seq(notifier, seq) };
        }
    });
    true
}

#[pinned_drop]
impl PinnedDrop for OnDemand {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants it was inserted. Callbacks are waited for.
        unsafe { bindings::mmu_interval_notifier_remove(self.notifier.get()) };
    }
}

/// The use of on-demand memory by a region. It ends when this is dropped, in process context.
pub(crate) struct Opened(pub(crate) Arc<OnDemand>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.close();
    }
}
