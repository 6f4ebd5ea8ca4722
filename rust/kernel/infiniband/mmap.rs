// SPDX-License-Identifier: GPL-2.0

//! Memory that programs map from the device file.
//!
//! A driver has no verb for it: it makes an [`Entry`] for a [`SharedArea`] and tells the program
//! the entry's offset. The core keeps entries by offset; its structure is the head of ours
//! (`Node`).

use core::ptr::NonNull;

use kernel::{
    error::{
        from_result,
        to_result, //
    },
    mm::virt::VmaNew,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    types::{
        Opaque,
        ScopeGuard, //
    },
};
use kernel_ext::mm::SharedArea;

use crate::bindings;

/// The accesses that a program may make to memory that it maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Read and write.
    ReadWrite,
    /// Read; a mapping to write is refused with `EPERM`, now and by `mprotect`.
    ReadOnly,
}

/// A context's entries, as far as both they and the context have to know of each other.
#[pin_data]
pub(crate) struct Entries {
    /// The context, until it is destroyed.
    #[pin]
    context: Mutex<Option<Context>>,
}

/// A context that is alive.
struct Context(NonNull<bindings::ib_ucontext>);

// SAFETY: The pointer is used with the core's functions for entries only, which lock.
unsafe impl Send for Context {}

impl Entries {
    /// Starts with the entries of `context`.
    pub(crate) fn new(context: NonNull<bindings::ib_ucontext>) -> impl PinInit<Self> {
        pin_init!(Self {
            context <- new_mutex!(Some(Context(context)), "rdma::mmap::Entries::context"),
        })
    }

    /// Removes all entries that are left, and lets go of the context.
    pub(crate) fn close(&self) {
        let mut context = self.context.lock();
        let Some(Context(raw)) = context.take() else {
            return;
        };
        let mut index: c_ulong = 0;
        loop {
            // SAFETY: The context is alive.
            let entry = unsafe {
                bindings::xa_find(
                    &raw mut (*raw.as_ptr()).mmap_xa,
                    &mut index,
                    c_ulong::MAX,
                    bindings::XA_PRESENT,
                )
            };
            if entry.is_null() {
                break;
            }
            // SAFETY: Entries are removed under the lock only, so the entry is still in place. The
            // core maps nothing any more when it destroys the context, so this frees the entry.
            unsafe { bindings::rdma_user_mmap_entry_remove(entry.cast()) };
        }
    }
}

/// An entry as the core keeps it.
///
/// # Invariants
///
/// It is allocated as a [`KBox`], which [`free_callback`] takes back.
#[repr(C)]
struct Node {
    raw: Opaque<bindings::rdma_user_mmap_entry>,
    area: Arc<SharedArea>,
    protection: Protection,
}

/// Memory that the program of one context can map.
///
/// When it is dropped, nothing can be mapped by it any more; mappings that exist keep their pages.
/// It may outlive its context: then it has no effect any more. It must be dropped where one may
/// sleep.
///
/// # Invariants
///
/// As long as `entries` has the context, `node` is valid, and in the context's table.
pub struct Entry {
    entries: Arc<Entries>,
    node: NonNull<Node>,
    offset: u64,
    area: Arc<SharedArea>,
}

// SAFETY: The node is used under the lock of `entries` only.
unsafe impl Send for Entry {}

// SAFETY: By a shared reference only the area and the offset can be reached, and areas are `Sync`.
unsafe impl Sync for Entry {}

impl Entry {
    /// Makes `area` mappable by the program of a context.
    ///
    /// # Safety
    ///
    /// The context is the one that `entries` was made for, and alive.
    pub(crate) unsafe fn new(
        context: NonNull<bindings::ib_ucontext>,
        entries: &Arc<Entries>,
        area: Arc<SharedArea>,
        protection: Protection,
    ) -> Result<Self> {
        let node = KBox::new(
            Node {
                raw: Opaque::zeroed(),
                area: area.clone(),
                protection,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        let node = KBox::into_raw(node);
        // SAFETY: The context is alive by the requirements of this function, and `node` is a valid
        // entry that has not been inserted yet.
        let inserted = to_result(unsafe {
            bindings::rdma_user_mmap_entry_insert(
                context.as_ptr(),
                Opaque::cast_into(&raw const (*node).raw),
                area.len(),
            )
        });
        if let Err(error) = inserted {
            // SAFETY: The core has not taken the node.
            drop(unsafe { KBox::from_raw(node) });
            return Err(error);
        }
        // SAFETY: The node was just inserted, which has set its place.
        let page = unsafe { (*Opaque::cast_into(&raw const (*node).raw)).start_pgoff };
        Ok(Entry {
            entries: entries.clone(),
            // INVARIANT: The node is in the table of the context.
            // SAFETY: The pointer comes from a box.
            node: unsafe { NonNull::new_unchecked(node) },
            offset: page as u64 * PAGE_SIZE as u64,
            area,
        })
    }

    /// The offset by which the program maps it.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The length in bytes, a multiple of the page size.
    #[allow(clippy::len_without_is_empty, reason = "an area is never empty")]
    pub fn len(&self) -> usize {
        self.area.len()
    }

    /// The memory.
    pub fn area(&self) -> &Arc<SharedArea> {
        &self.area
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let context = self.entries.context.lock();
        if context.is_some() {
            // SAFETY: By the type invariants, the node is in the table; the lock keeps the context
            // alive. From now on nobody uses `node` here.
            unsafe {
                bindings::rdma_user_mmap_entry_remove(Opaque::cast_into(
                    &raw const (*self.node.as_ptr()).raw,
                ))
            };
        }
    }
}

/// `mmap` of `struct ib_device_ops`.
///
/// # Safety
///
/// `context` is a context of a driver that makes its entries by [`Entry::new`], and `vma` is being
/// set up.
pub(crate) unsafe extern "C" fn mmap_callback(
    context: *mut bindings::ib_ucontext,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function. It is found only if the mapping is shared
        // and has the length of the entry.
        let entry = unsafe { bindings::rdma_user_mmap_entry_get(context, vma) };
        if entry.is_null() {
            return Err(EINVAL);
        }
        let _entry = ScopeGuard::new(|| {
            // SAFETY: The reference is the one that was just taken.
            unsafe { bindings::rdma_user_mmap_entry_put(entry) }
        });
        // SAFETY: All entries of the context are nodes, with the core's part at offset 0, and
        // ours is not freed before the reference is given up.
        let node = unsafe { &*entry.cast::<Node>() };
        // SAFETY: By the requirements of this function.
        let vma = unsafe { VmaNew::from_raw(vma) };

        if node.protection == Protection::ReadOnly {
            if vma.writable() {
                return Err(EPERM);
            }
            vma.try_clear_maywrite()?;
        }
        // A child would share the queues with its parent, and the core tracks no copies.
        vma.set_dontcopy();
        vma.set_dontexpand();
        vma.set_mixedmap();

        // The core's `vm_ops` stay, with no private data: that is how it knows that there is
        // nothing to revoke. The pages live as long as the mapping does.
        for index in 0..node.area.len() / PAGE_SIZE {
            // SAFETY: The page is one of `vmalloc`, in the middle of no other use, and the area may
            // be mixed.
            to_result(unsafe {
                bindings::vm_insert_page(
                    vma.as_ptr(),
                    vma.start() + index * PAGE_SIZE,
                    node.area.page(index)?,
                )
            })?;
        }
        Ok(0)
    })
}

/// `mmap_free` of `struct ib_device_ops`.
///
/// # Safety
///
/// `entry` was made by [`Entry::new`], and the core has just dropped the last reference to it.
pub(crate) unsafe extern "C" fn free_callback(entry: *mut bindings::rdma_user_mmap_entry) {
    // SAFETY: By the requirements of this function and the invariants of `Node`.
    drop(unsafe { KBox::from_raw(entry.cast::<Node>()) });
}
