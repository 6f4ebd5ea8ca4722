// SPDX-License-Identifier: GPL-2.0

//! The pages of an on-demand region that are in memory.
//!
//! A processor's page tables have the same shape: a chunk of the table is there as long as one of
//! its pages is. So a region costs nothing before it is used, however long it is, and the table has
//! less memory than the program's own tables. Both are charged to the program, and so is the table
//! of each further region of the same memory.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    page::{
        PAGE_MASK,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
};

use crate::bindings;

/// The pages of a chunk.
const PAGES: usize = 512;

/// The bytes of a chunk.
pub(crate) const CHUNK: usize = PAGES << PAGE_SHIFT;

/// The end of the chunk that a page is in.
pub(crate) fn chunk_end(addr: usize) -> usize {
    (addr | (CHUNK - 1)).saturating_add(1)
}

/// A page may be written to.
const WRITABLE: usize = bindings::PAGING_WRITABLE as usize;

/// A page was written to.
const WRITTEN: usize = 2;

/// A word for each page of a chunk. In a table it is the page's kernel address with flags, or 0.
#[derive(Zeroable)]
pub(crate) struct Pages([usize; PAGES]);

impl Pages {
    /// Zeroes.
    pub(crate) fn new() -> Result<KBox<Self>> {
        KBox::init(pin_init::init_zeroed(), GFP_KERNEL_ACCOUNT)
    }

    /// The words of the first pages.
    pub(crate) fn first(&mut self, count: usize) -> &mut [usize] {
        self.0.get_mut(..count).unwrap_or(&mut [])
    }
}

/// A chunk of a table.
struct Chunk {
    pages: KBox<Pages>,
    /// How many words are not 0.
    present: usize,
}

/// A chunk that belongs to no table.
pub(crate) struct Spare(RBTreeNode<usize, Chunk>);

impl Spare {
    /// A chunk for the page at `addr`.
    pub(crate) fn new(addr: usize) -> Result<Self> {
        let chunk = Chunk {
            pages: Pages::new()?,
            present: 0,
        };
        Ok(Spare(RBTreeNode::new(
            addr / CHUNK,
            chunk,
            GFP_KERNEL_ACCOUNT,
        )?))
    }
}

/// The pages that were looked up last, which follow each other in memory.
///
/// # Invariants
///
/// They are in the table, and were marked as written to if `write`.
struct Recent {
    start: usize,
    end: usize,
    /// Their kernel address.
    at: usize,
    write: bool,
}

impl Recent {
    /// No pages.
    const NONE: Self = Self {
        start: 0,
        end: 0,
        at: 0,
        write: false,
    };
}

/// The pages by their addresses in the program.
pub(crate) struct PageTable {
    chunks: RBTree<usize, Chunk>,
    recent: Recent,
}

/// Whether a page is there, to be written or only to be read.
pub(crate) fn allows(page: usize, write: bool) -> bool {
    page != 0 && (!write || page & WRITABLE != 0)
}

/// The number of a page in its chunk.
fn index(addr: usize) -> usize {
    (addr >> PAGE_SHIFT) % PAGES
}

impl PageTable {
    /// Without a page.
    pub(crate) fn new() -> Self {
        PageTable {
            chunks: RBTree::new(),
            // INVARIANT: There are none.
            recent: Recent::NONE,
        }
    }

    /// Where the byte `addr` of the program is, and how many of `len` bytes follow each other
    /// there. `None` if it is not in memory, or not for writing.
    #[inline]
    pub(crate) fn piece(
        &mut self,
        addr: usize,
        len: usize,
        write: bool,
    ) -> Option<(NonNull<u8>, usize)> {
        let recent = &self.recent;
        // Programs use the same buffers again and again.
        if addr >= recent.start
            && addr < recent.end
            && len <= recent.end - addr
            && (recent.write || !write)
        {
            let at = ptr::with_exposed_provenance_mut(recent.at + (addr - recent.start));
            return Some((NonNull::new(at)?, len));
        }
        self.look_up(addr, len, write)
    }

    /// As [`PageTable::piece`].
    fn look_up(&mut self, addr: usize, len: usize, write: bool) -> Option<(NonNull<u8>, usize)> {
        let chunk = self.chunks.get_mut(&(addr / CHUNK))?;
        let mut pages = chunk.pages.0.get_mut(index(addr)..)?.iter_mut();
        let mark = if write { WRITTEN } else { 0 };
        let first = pages.next().filter(|page| allows(**page, write))?;
        *first |= mark;
        let start = *first & PAGE_MASK;
        let skip = addr & !PAGE_MASK;
        let mut found = PAGE_SIZE - skip;
        for page in pages {
            let is_next = *page & PAGE_MASK == start + skip + found;
            if found >= len || !allows(*page, write) || !is_next {
                break;
            }
            *page |= mark;
            found += PAGE_SIZE;
        }
        // INVARIANT: The pages up to the last one that was found are there, and bear the mark.
        self.recent = Recent {
            start: addr - skip,
            end: addr + found,
            at: start,
            write,
        };
        let at = NonNull::new(ptr::with_exposed_provenance_mut(start + skip))?;
        Some((at, found.min(len)))
    }

    /// The first page from `start` on, and before `end`, that is not in memory, or not for writing.
    pub(crate) fn first_absent(&self, start: usize, end: usize, write: bool) -> Option<usize> {
        let mut addr = start & PAGE_MASK;
        while addr < end {
            let Some(chunk) = self.chunks.get(&(addr / CHUNK)) else {
                return Some(addr);
            };
            for page in chunk.pages.0.get(index(addr)..)? {
                if addr >= end {
                    break;
                }
                if !allows(*page, write) {
                    return Some(addr);
                }
                addr += PAGE_SIZE;
            }
        }
        None
    }

    /// Takes the pages from `first` on, all of one chunk, as they were found. If there is no such
    /// chunk yet, `spare` becomes it.
    pub(crate) fn install(&mut self, first: usize, found: &[usize], spare: &mut Option<Spare>) {
        let number = first / CHUNK;
        if found.iter().all(|page| *page == 0) {
            return;
        }
        if self.chunks.get(&number).is_none() {
            if let Some(Spare(node)) = spare.take() {
                self.chunks.insert(node);
            }
        }
        let Some(chunk) = self.chunks.get_mut(&number) else {
            return;
        };
        let Some(pages) = chunk.pages.0.get_mut(index(first)..) else {
            return;
        };
        for (page, &found) in pages
            .iter_mut()
            .zip(found)
            .filter(|(_, found)| **found != 0)
        {
            chunk.present += usize::from(*page == 0);
            *page = found | *page & WRITTEN;
        }
    }

    /// Forgets pages from `start` on and before `end`, of one chunk. Those that were written to are
    /// dirty from then on.
    ///
    /// Returns where to go on, and a chunk that has no pages any more.
    ///
    /// # Safety
    ///
    /// The pages of the table are in memory.
    pub(crate) unsafe fn clear(
        &mut self,
        start: usize,
        end: usize,
    ) -> (Option<usize>, Option<Spare>) {
        if start >= end {
            return (None, None);
        }
        // INVARIANT: There are none.
        self.recent = Recent::NONE;
        let Some(mut cursor) = self.chunks.cursor_lower_bound_mut(&(start / CHUNK)) else {
            return (None, None);
        };
        let (&number, chunk) = cursor.current_mut();
        let base = number * CHUNK;
        if base >= end {
            return (None, None);
        }
        let from = start.max(base);
        let until = end.min(base.saturating_add(CHUNK));
        let count = (until - from).div_ceil(PAGE_SIZE);
        for page in chunk.pages.0.iter_mut().skip(index(from)).take(count) {
            if *page & WRITTEN != 0 {
                let addr = ptr::with_exposed_provenance_mut::<u8>(*page & PAGE_MASK);
                // SAFETY: By the requirements of this function, there is a page at this address.
                unsafe { bindings::set_page_dirty(addr.cast()) };
            }
            chunk.present -= usize::from(*page != 0);
            *page = 0;
        }
        let next = base.checked_add(CHUNK).filter(|next| *next < end);
        let is_empty = chunk.present == 0;
        (next, is_empty.then(|| Spare(cursor.remove_current().1)))
    }
}
