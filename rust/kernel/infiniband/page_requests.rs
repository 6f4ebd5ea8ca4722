// SPDX-License-Identifier: GPL-2.0

//! The requests to bring pages of an on-demand region in, and the pages that cannot be had.

use kernel::{
    page::{
        PAGE_MASK,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*, //
};
use kernel_ext::time::monotonic_ns;

use crate::{
    bindings,
    page_table::{
        allows,
        chunk_end, //
    },
};

/// The requests that a region has at a time. One more is dropped, and asked for again later.
const REQUESTS: usize = 16;

/// Nanoseconds for which it is remembered that a page cannot be had. Its asker asks again after
/// some ten microseconds, or milliseconds on a busy machine; one that has given up does not.
const REFUSAL_NS: u64 = 100_000_000;

/// For what pages are to be brought in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// For reading.
    Read,
    /// For writing.
    Write,
    /// For what they allow, if they are in memory already.
    Present,
}

impl Purpose {
    /// As `paging_fault()` has it.
    pub(crate) fn raw(self) -> u32 {
        match self {
            Purpose::Read => bindings::PAGING_READ,
            Purpose::Write => bindings::PAGING_WRITE,
            Purpose::Present => bindings::PAGING_NONE,
        }
    }
}

/// A request to bring pages in.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// Addresses in the program.
    pub(crate) from: usize,
    to: usize,
    pub(crate) purpose: Purpose,
    /// The name of the party that waits for it; none for a hint.
    asker: Option<u64>,
    /// One page at a time, since one of them cannot be had.
    is_single: bool,
}

impl Request {
    /// A request of `asker` for the pages from `from` to before `to`, or a hint.
    pub(crate) fn new(from: usize, to: usize, purpose: Purpose, asker: Option<u64>) -> Self {
        Self {
            from,
            to,
            purpose,
            asker,
            is_single: false,
        }
    }

    /// The end of the part that is to be served at once: a chunk at most.
    pub(crate) fn step(&self) -> usize {
        self.to.min(if self.is_single {
            (self.from & PAGE_MASK) + PAGE_SIZE
        } else {
            chunk_end(self.from)
        })
    }
}

/// A page that cannot be had.
#[derive(Clone, Copy)]
struct Refusal {
    page: usize,
    write: bool,
    /// The name of the party that has asked for it before.
    asker: u64,
    /// When it is forgotten, in nanoseconds of [`monotonic_ns`].
    until: u64,
}

/// The requests of a region.
pub(crate) struct Requests {
    requests: [Option<Request>; REQUESTS],
    /// The place of the request that is served next.
    next: usize,
    refusals: [Option<Refusal>; REQUESTS],
    /// The place of the latest refusal.
    next_refusal: usize,
}

impl Requests {
    /// Without any. Not inlined, for [`boxed`](kernel_ext::boxed::boxed).
    #[inline(never)]
    pub(crate) fn new() -> Self {
        Self {
            requests: [None; REQUESTS],
            next: 0,
            refusals: [None; REQUESTS],
            next_refusal: 0,
        }
    }

    /// Drops all requests.
    pub(crate) fn clear(&mut self) {
        for place in &mut self.requests {
            *place = None;
        }
    }

    /// Adds a request, unless it is there or there are too many.
    pub(crate) fn add(&mut self, new: Request) {
        let is_known = self.requests.iter().flatten().any(|known| {
            known.from <= new.from
                && known.to >= new.to
                && (known.asker.is_some() || new.asker.is_none())
                && (known.purpose == new.purpose || known.purpose == Purpose::Write)
        });
        if is_known {
            return;
        }
        if let Some(place) = self.requests.iter_mut().find(|place| place.is_none()) {
            *place = Some(new);
        }
    }

    /// The request to be served next, and its place.
    pub(crate) fn next(&mut self) -> Option<(usize, Request)> {
        for step in 0..REQUESTS {
            let place = (self.next + step) % REQUESTS;
            if let Some(&Some(request)) = self.requests.get(place) {
                self.next = place + 1;
                return Some((place, request));
            }
        }
        None
    }

    /// Pages of the request that was next up to `until` were brought in, or not. If all requests
    /// were dropped meanwhile, there is none in its place, or another one.
    pub(crate) fn served(&mut self, place: usize, next: &Request, until: usize, result: Result) {
        let Some(slot) = self.requests.get_mut(place) else {
            return;
        };
        let Some(request) = slot.as_mut().filter(|request| request.from == next.from) else {
            return;
        };
        let is_one = until.saturating_sub(request.from) <= PAGE_SIZE;
        match (result, request.asker) {
            (Ok(()), _) if until < request.to => request.from = until,
            // The asker that waits asks again. Nobody is told of errors of hints.
            (Ok(()) | Err(EAGAIN | ENOMEM), _) | (Err(_), None) => *slot = None,
            (Err(_), Some(_)) if !is_one => request.is_single = true,
            (Err(_), Some(asker)) => {
                let refusal = Refusal {
                    page: request.from & PAGE_MASK,
                    write: request.purpose == Purpose::Write,
                    asker,
                    until: monotonic_ns().saturating_add(REFUSAL_NS),
                };
                *slot = None;
                self.next_refusal = (self.next_refusal + 1) % REQUESTS;
                if let Some(place) = self.refusals.get_mut(self.next_refusal) {
                    *place = Some(refusal);
                }
            }
        }
    }

    /// Pages from `first` on have been looked up: those that were found can be had now.
    pub(crate) fn forget_refusals(&mut self, first: usize, found: &[usize]) {
        for place in &mut self.refusals {
            *place = place.filter(|refusal| {
                let at = refusal.page.checked_sub(first);
                let page = at.and_then(|at| found.get(at >> PAGE_SHIFT));
                !page.is_some_and(|page| allows(*page, refusal.write))
            });
        }
    }

    /// Whether a page was found not to be had since the asker has asked for it. Each finding counts
    /// once, and for its asker alone: for another one the program may have mapped the page since.
    pub(crate) fn take_refusal(&mut self, page: usize, write: bool, asker: u64) -> bool {
        let now = monotonic_ns();
        let found = self.refusals.iter_mut().find(|place| {
            place.is_some_and(|refusal| {
                refusal.page == page
                    && refusal.asker == asker
                    && (write || !refusal.write)
                    && now < refusal.until
            })
        });
        found.is_some_and(|place| place.take().is_some())
    }
}
