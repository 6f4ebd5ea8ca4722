// SPDX-License-Identifier: GPL-2.0

//! Memory regions.
//!
//! Other than the rest of the objects, the driver allocates these, so this crate does.

pub(crate) mod kernel_users;

use core::mem::MaybeUninit;

use kernel::{
    error::{
        from_result,
        VTABLE_DEFAULT_ERROR, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};
use kernel_ext::error::code::EOPNOTSUPP;

use crate::{
    bindings,
    dma_buf,
    mapped::Mapped,
    object::{
        impl_object,
        Object, //
    },
    udata::Call,
    Access,
    Device,
    Driver,
    Memory,
    Pd,
    UserCall, //
};

/// Memory of a program that is to be registered.
pub struct UserRegion {
    /// The address in the program.
    pub start: u64,
    /// The length in bytes.
    pub length: u64,
    /// The address by which work requests name the start.
    pub iova: u64,
    /// The access rights.
    pub access: Access,
}

/// The changes of a region that is registered anew: a field that is none stays as it is.
pub struct Change<'a, D: Driver> {
    /// The memory: address in the program, length in bytes, and the address by which work requests
    /// name the start.
    pub memory: Option<(u64, u64, u64)>,
    /// The access rights.
    pub access: Option<Access>,
    /// The protection domain.
    pub pd: Option<&'a Pd<D>>,
    /// The protection domain so far.
    pub pd_so_far: &'a Pd<D>,
}

/// A driver's verbs of memory regions. The value is dropped when the region goes.
#[vtable]
pub trait Operations: Sized + Send + Sync + 'static {
    /// The driver.
    type Driver: Driver<Mr = Self>;

    /// The pages that a region for fast registration has at most, as
    /// [`Attr::max_fast_reg_page_list_len`](crate::device::Attr) tells; 0 if there is no fast
    /// registration, even if [`alloc`](Self::alloc) is implemented.
    const MAX_PAGES: u32 = 0;

    /// Registers memory of a program. The keys must be set ([`New::set_keys`]).
    ///
    /// # Errors
    ///
    /// Any error is the program's answer.
    fn reg_user(
        new: &mut New<'_, Self::Driver>,
        region: &UserRegion,
        user: UserCall<'_, Self::Driver>,
    ) -> Result<Self>;

    /// Registers a part of a buffer that the program has as a file. The keys must be set
    /// ([`New::set_keys`]).
    ///
    /// # Errors
    ///
    /// Any error is the program's answer.
    fn reg_dma_buf(
        _new: &mut New<'_, Self::Driver>,
        _part: &dma_buf::Part,
        _iova: u64,
        _access: Access,
    ) -> Result<Self> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes the region of all kernel memory, for users in the kernel: `memory`, by its kernel
    /// addresses. The keys must be set ([`New::set_keys`]). To reach the memory is unsafe: see
    /// [`memory`](crate::memory) for what the user promises, and what the driver. On a device with
    /// a parent, users name memory by that one's DMA addresses, and `memory` is empty.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn get_dma(_new: &mut New<'_, Self::Driver>, _memory: Memory, _access: Access) -> Result<Self> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes a region for fast registration by kernel users. It opens nothing until a request
    /// registers it ([`Operation::Register`](crate::wr::Operation::Register)); then, and with each
    /// such request anew, it opens what `memory` becomes by [`Memory::renew`]. The keys must be set
    /// ([`New::set_keys`]); users choose the lower 8 bits of later ones. To reach the memory is
    /// unsafe, as it is for [`get_dma`](Self::get_dma). On a device with a parent `memory` stays
    /// empty, and [`mapped`](Self::mapped) tells what is mapped.
    ///
    /// # Errors
    ///
    /// Any error is the caller's answer.
    fn alloc(_new: &mut New<'_, Self::Driver>, _memory: Memory) -> Result<Self> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// A user has mapped memory to a region of [`alloc`](Self::alloc), on a device with a parent:
    /// the next request registers it. Of each extent it is that one's DMA address, and the length,
    /// which is not 0; of no extents, nothing is mapped any more. All earlier requests about the
    /// region have completed. Any context.
    ///
    /// # Errors
    ///
    /// Any error is the user's answer.
    fn mapped(_mr: &Mr<Self::Driver>, _extents: impl Iterator<Item = (u64, u64)>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Registers a region anew, under the keys that it has. No other verb on the region runs
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// Any error is the program's answer, and then nothing has changed.
    fn rereg_user(_mr: &Mr<Self::Driver>, _change: &Change<'_, Self::Driver>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Says whether the program may deregister a region now. If it is not implemented, it may.
    ///
    /// # Errors
    ///
    /// Any error is the program's answer. When its file is closed, the core asks again after other
    /// objects have gone.
    fn may_dereg(_mr: &Mr<Self::Driver>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A memory region: `struct ib_mr`.
#[repr(transparent)]
pub struct Mr<D: Driver>(pub(crate) Object<bindings::ib_mr, Option<Arc<Mapped>>, D::Mr>);

impl_object!(Mr, bindings::ib_mr, Mr);

impl<D: Driver> Mr<D> {
    /// The device of the region.
    #[inline]
    pub fn device(&self) -> &Device<D> {
        // SAFETY: A region has a device, which does not change and outlives it.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// The local key.
    pub fn lkey(&self) -> u32 {
        // SAFETY: The key was set when the region was made.
        unsafe { (*self.as_raw()).lkey }
    }

    /// The remote key.
    pub fn rkey(&self) -> u32 {
        // SAFETY: The key was set when the region was made.
        unsafe { (*self.as_raw()).rkey }
    }
}

/// A memory region that is being registered.
pub struct New<'a, D: Driver>(&'a Mr<D>);

impl<D: Driver> New<'_, D> {
    /// The device of the region.
    pub fn device(&self) -> &Device<D> {
        self.0.device()
    }

    /// The protection domain of the region.
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: The domain was set before this was made; the core keeps it during the call.
        unsafe { Pd::from_raw((*self.0.as_raw()).pd) }
    }

    /// The pages that may be mapped to a region for fast registration; 0 for others.
    pub fn max_pages(&self) -> u32 {
        // SAFETY: The region is in stage 2.
        let mapped = unsafe { self.0 .0.extra() }.as_ref();
        mapped.map_or(0, |mapped| mapped.max_pages())
    }

    /// Sets the local and the remote key.
    pub fn set_keys(&mut self, lkey: u32, rkey: u32) {
        let raw = self.0.as_raw();
        // SAFETY: Nobody but this call knows of the region.
        unsafe {
            (*raw).lkey = lkey;
            (*raw).rkey = rkey;
        }
    }
}

/// `reg_user_mr` of `struct ib_device_ops`.
///
/// # Safety
///
/// `pd` is a domain of a device of the driver `D`, alive, and `udata` is null or belongs to the
/// call.
pub(crate) unsafe extern "C" fn reg_user_callback<D: Driver>(
    pd: *mut bindings::ib_pd,
    start: u64,
    length: u64,
    iova: u64,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    // SAFETY: By the requirements of this function.
    let call = unsafe { Call::new(udata) };
    let region = UserRegion {
        start,
        length,
        iova,
        access: Access::from_bits(access as u32),
    };
    // SAFETY: By the requirements of this function.
    match unsafe { reg_user::<D>(pd, &region, dmah, &call) } {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

/// # Safety
///
/// As for [`reg_user_callback`].
unsafe fn reg_user<D: Driver>(
    pd: *mut bindings::ib_pd,
    region: &UserRegion,
    dmah: *mut bindings::ib_dmah,
    call: &Call,
) -> Result<*mut bindings::ib_mr> {
    if !dmah.is_null() {
        return Err(EOPNOTSUPP);
    }
    // SAFETY: `D` is the driver of the device.
    let user = unsafe { call.user::<D>() }.ok_or(EOPNOTSUPP)?;

    // SAFETY: By the requirements of this function.
    unsafe {
        make::<D>(pd, region.iova, region.length, None, |new| {
            D::Mr::reg_user(new, region, user).and_then(|value| call.finish().map(|()| value))
        })
    }
}

/// `reg_user_mr_dmabuf` of `struct ib_device_ops`.
///
/// # Safety
///
/// `pd` is a domain of a device of the driver `D`, alive, and `attrs` belongs to the call.
pub(crate) unsafe extern "C" fn reg_dma_buf_callback<D: Driver>(
    pd: *mut bindings::ib_pd,
    offset: u64,
    length: u64,
    iova: u64,
    fd: c_int,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    // SAFETY: By the requirements of this function.
    let call = unsafe { Call::of_attrs(attrs) };
    let part = dma_buf::Part { fd, offset, length };
    let made = || {
        if !dmah.is_null() {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: By the requirements of this function.
        unsafe {
            make::<D>(pd, iova, length, None, |new| {
                D::Mr::reg_dma_buf(new, &part, iova, Access::from_bits(access as u32))
                    .and_then(|value| call.finish().map(|()| value))
            })
        }
    };
    match made() {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

/// Makes a region of the memory that `register` registers. `mapped` is for one that is registered
/// by requests.
///
/// # Safety
///
/// `pd` is a domain of a device of the driver `D`, alive.
pub(crate) unsafe fn make<D: Driver>(
    pd: *mut bindings::ib_pd,
    iova: u64,
    length: u64,
    mapped: Option<Arc<Mapped>>,
    register: impl FnOnce(&mut New<'_, D>) -> Result<D::Mr>,
) -> Result<*mut bindings::ib_mr> {
    let object = KBox::<Mr<D>>::new_uninit(GFP_KERNEL_ACCOUNT)?;
    let this = KBox::into_raw(object).cast::<Mr<D>>();
    // SAFETY: The memory is ours; all zeroes are a valid `struct ib_mr`.
    unsafe {
        let raw = Opaque::cast_into(this.cast::<Opaque<bindings::ib_mr>>());
        raw.write_bytes(0, 1);
        // The core sets these when the verb has returned; a part of it never sets the latter.
        (*raw).device = (*pd).device;
        (*raw).pd = pd;
        (*raw).iova = iova;
        (*raw).length = length;
        (*raw).page_size = PAGE_SIZE as c_uint;
        Object::begin(&raw mut (*this).0, mapped);
    }

    // SAFETY: The object is in stage 2, which is all that `New` uses.
    let mut new = New::<D>(unsafe { &*this });
    match register(&mut new) {
        Ok(value) => {
            // SAFETY: The object is in stage 2, and `new` is not used any more.
            unsafe { Object::complete(&raw mut (*this).0, value) };
            Ok(this.cast())
        }
        Err(error) => {
            // SAFETY: The object is in stage 2, and `new` is not used any more. The memory comes
            // from the box above; nothing else in it has to be dropped.
            unsafe {
                Object::end(&raw mut (*this).0);
                drop(KBox::from_raw(this.cast::<MaybeUninit<Mr<D>>>()));
            }
            Err(error)
        }
    }
}

/// `rereg_user_mr` of `struct ib_device_ops`.
///
/// # Safety
///
/// `raw` is a region of a device of the driver `D`, alive, and the core calls no other operation on
/// it meanwhile. `pd` is a domain of the device, alive. `udata` is null or belongs to the call.
pub(crate) unsafe extern "C" fn rereg_user_callback<D: Driver>(
    raw: *mut bindings::ib_mr,
    flags: c_int,
    start: u64,
    length: u64,
    iova: u64,
    access: c_int,
    pd: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    let asked = |flag: c_uint| flags as c_uint & flag != 0;
    // SAFETY: By the requirements of this function.
    let call = unsafe { Call::new(udata) };
    let change = Change {
        memory: asked(bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS)
            .then_some((start, length, iova)),
        access: asked(bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS)
            .then_some(Access::from_bits(access as u32)),
        pd: asked(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD).then(|| {
            // SAFETY: By the requirements of this function.
            unsafe { Pd::from_raw(pd) }
        }),
        // SAFETY: By the requirements of this function. The region has a domain, which the core
        // changes after the call.
        pd_so_far: unsafe { Pd::from_raw((*raw).pd) },
    };
    // SAFETY: By the requirements of this function; regions come from `make`.
    let mr = unsafe { &*raw.cast::<Mr<D>>() };
    // Input of the program is refused before anything changes.
    let result = call.finish().and_then(|()| D::Mr::rereg_user(mr, &change));
    match result {
        // The region has changed in place.
        Ok(()) => core::ptr::null_mut(),
        Err(error) => error.to_ptr(),
    }
}

/// `dereg_mr` of `struct ib_device_ops`. It takes [any request](crate::udata::no_udata).
///
/// # Safety
///
/// `raw` is a region of a device of the driver `D`, alive, and nobody uses it any more.
pub(crate) unsafe extern "C" fn dereg_callback<D: Driver>(
    raw: *mut bindings::ib_mr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        let this = raw.cast::<Mr<D>>();
        if D::Mr::HAS_MAY_DEREG {
            // SAFETY: The region is alive.
            D::Mr::may_dereg(unsafe { &*this })?;
        }
        // SAFETY: By the requirements of this function, and since regions come from `make`.
        unsafe {
            Object::dismiss(&raw mut (*this).0, |_| ());
            drop(KBox::from_raw(this.cast::<MaybeUninit<Mr<D>>>()));
        }
        Ok(0)
    })
}
