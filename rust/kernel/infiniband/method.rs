// SPDX-License-Identifier: GPL-2.0

//! Methods of the device file that a driver has beside the core's own (`RDMA_VERBS_IOCTL`).

use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::NonNull, //
};

use kernel::{
    error::{
        from_err_ptr,
        from_result,
        to_result, //
    },
    prelude::*, //
};
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

use crate::{
    bindings,
    Driver,
    Ucontext, //
};

/// A method of the object `UVERBS_OBJECT_DEVICE`, which programs call by its number. It takes no
/// object, so its context is all that it is about.
///
/// # Examples
///
/// ```ignore
/// struct Square;
///
/// impl Square {
///     const NUMBER: Attr = Attr::input::<u32>(Attr::DRIVER);
///     const RESULT: Attr = Attr::output::<u64>(Attr::DRIVER + 1);
/// }
///
/// impl Method for Square {
///     type Driver = Loop;
///
///     const ID: u16 = 1 << 12;
///     const ATTRS: &'static [&'static Attr] = &[&Self::NUMBER, &Self::RESULT];
///
///     fn call(_context: &Ucontext<Loop>, attrs: &Attrs<'_, Loop>) -> Result {
///         let number = u64::from(attrs.read::<u32>(&Self::NUMBER)?);
///         attrs.write(&Self::RESULT, &(number * number))
///     }
/// }
///
/// impl rdma::Driver for Loop {
///     const METHODS: &'static [&'static Definition<Self>] = &[&Definition::of::<Square>()];
///     // …
/// }
/// ```
pub trait Method: 'static {
    /// The driver.
    type Driver: Driver;

    /// The number. Those of drivers begin at `1 << UVERBS_ID_NS_SHIFT`, which is 4096.
    const ID: u16;

    /// The attributes that a program may give. A command with any other is refused with
    /// `EPROTONOSUPPORT`.
    const ATTRS: &'static [&'static Attr] = &[];

    /// Runs the method, in process context, possibly beside other commands of the context. It must
    /// be bounded: the device's removal waits for it.
    ///
    /// # Errors
    ///
    /// Any error is the program's answer.
    fn call(context: &Ucontext<Self::Driver>, attrs: &Attrs<'_, Self::Driver>) -> Result;
}

/// A kind of object that programs name by handles.
///
/// # Safety
///
/// All objects of the type `TYPE` of a device of the driver are such as
/// [`from_object`](Self::from_object) borrows.
pub unsafe trait Object {
    /// The driver.
    type Driver: Driver;

    /// The type, of `enum uverbs_default_objects`.
    const TYPE: u16;

    /// Borrows the object that a handle names.
    ///
    /// # Safety
    ///
    /// `object` is one of the type, of a device of the driver, and alive as long as the reference
    /// is.
    unsafe fn from_object<'a>(object: *mut c_void) -> &'a Self;
}

/// The description of an attribute: a value of one size that a program gives, or that it gets, or
/// the handle of an object.
#[repr(transparent)]
pub struct Attr(bindings::uverbs_attr_def);

impl Attr {
    /// The first number that an attribute of a driver may have (`1 << UVERBS_ID_NS_SHIFT`); there
    /// are 31.
    pub const DRIVER: u16 = 1 << bindings::UVERBS_ID_NS_SHIFT;
    const NUMBERS: u16 = 31;

    /// A value that the program gives.
    #[inline(always)]
    pub const fn input<T: FromBytes>(id: u16) -> Self {
        Self::new(
            id,
            bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_IN,
            size_of::<T>(),
        )
    }

    /// A value that the program gets.
    #[inline(always)]
    pub const fn output<T: IntoBytes + Immutable>(id: u16) -> Self {
        Self::new(
            id,
            bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_OUT,
            size_of::<T>(),
        )
    }

    /// The handle of an object, which no command destroys meanwhile. Others may use it.
    #[inline(always)]
    pub const fn object<T: Object>(id: u16) -> Self {
        let access = bindings::uverbs_obj_access_UVERBS_ACCESS_READ as u8;
        // `obj_type` and `access` of the variant `obj`, whose second field has 8 bits.
        Self::of(
            id,
            bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_IDR,
            [T::TYPE, u16::from_ne_bytes([access, 0])],
        )
    }

    #[inline(always)]
    const fn new(id: u16, kind: u32, size: usize) -> Self {
        build_assert!(size > 0 && size <= u16::MAX as usize);
        // `len` and `min_len` of the variant `ptr`, which has no other fields.
        Self::of(id, kind, [size as u16; 2])
    }

    #[inline(always)]
    const fn of(id: u16, kind: u32, fields: [u16; 2]) -> Self {
        build_assert!(id >= Self::DRIVER && id - Self::DRIVER < Self::NUMBERS);
        // SAFETY: All zeroes are a valid value: numbers, and pointers that may be null.
        let mut def: bindings::uverbs_attr_def = unsafe { MaybeUninit::zeroed().assume_init() };
        def.id = id;
        def.attr.type_ = kind as u8;
        def.attr.u.bindgen_union_field = fields;
        Attr(def)
    }

    /// Whether both say the same of an attribute of the same number.
    fn is(&self, other: &Self) -> bool {
        let (this, other) = (&self.0, &other.0);
        this.id == other.id
            && this.attr.type_ == other.attr.type_
            && this.attr.u.bindgen_union_field == other.attr.u.bindgen_union_field
    }
}

/// The attributes that a program has given to a method of the driver `D`.
pub struct Attrs<'a, D> {
    bundle: NonNull<bindings::uverbs_attr_bundle>,
    /// The attributes that the method has.
    known: &'static [&'static Attr],
    _bundle: PhantomData<&'a bindings::uverbs_attr_bundle>,
    _driver: PhantomData<fn(D)>,
}

impl<D: Driver> Attrs<'_, D> {
    /// Refuses an attribute that the core has not read as what it is taken for.
    fn check(&self, attr: &Attr) -> Result {
        // Of a number, the method has one description.
        let known = self.known.iter().find(|known| known.0.id == attr.0.id);
        match known {
            Some(known) if known.is(attr) => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// The object that the program names. It lives as long as the call.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it has not named one, `EINVAL` if the method has no such attribute.
    pub fn object<T: Object<Driver = D>>(&self, attr: &Attr) -> Result<&T> {
        self.check(attr)?;
        if !attr.is(&Attr::object::<T>(attr.0.id)) {
            return Err(EINVAL);
        }
        // SAFETY: The command is alive as long as this, and the core has looked the attribute up as
        // an object.
        let object = from_err_ptr(unsafe {
            bindings::uverbs_attr_get_obj(self.bundle.as_ptr(), attr.0.id)
        })?;
        // SAFETY: The core has looked for an object of the type, among those of the file, which is
        // one of a device of the driver. It holds the object until the command has ended.
        Ok(unsafe { T::from_object(object) })
    }

    /// Reads a value that the program gives.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it has not given it, `EINVAL` if it has another size, `EFAULT`.
    pub fn read<T: FromBytes>(&self, attr: &Attr) -> Result<T> {
        self.check(attr)?;
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: The command is alive as long as this, and the number is one that attributes may
        // have (`Attr::new`). No more is written than the size of the value.
        to_result(unsafe {
            bindings::_uverbs_copy_from(
                value.as_mut_ptr().cast(),
                self.bundle.as_ptr(),
                attr.0.id.into(),
                size_of::<T>(),
            )
        })?;
        // SAFETY: All bytes are initialised, by zeroes at least, and any bytes are a valid value.
        Ok(unsafe { value.assume_init() })
    }

    /// Writes a value that the program gets.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it has not asked for it, `EFAULT`.
    pub fn write<T: IntoBytes + Immutable>(&self, attr: &Attr, value: &T) -> Result {
        self.check(attr)?;
        let bytes = value.as_bytes();
        // SAFETY: The command is alive as long as this, and the number is one that attributes may
        // have (`Attr::new`). No more is read than there are bytes.
        to_result(unsafe {
            bindings::uverbs_copy_to(
                self.bundle.as_ptr(),
                attr.0.id.into(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        })
    }
}

/// The description of a method, for [`Driver::METHODS`].
#[repr(transparent)]
pub struct Definition<D>(bindings::uverbs_method_def, PhantomData<fn(D)>);

impl<D: Driver> Definition<D> {
    /// That of `M`.
    #[inline(always)]
    pub const fn of<M: Method<Driver = D>>() -> Self {
        build_assert!(M::ID >= Attr::DRIVER);
        // `Attr` is transparent, and a reference to one that always lives is a pointer that may be
        // read. With no attributes there is nothing to point to, but null would mean no method, and
        // a slice is never null.
        let attrs = M::ATTRS;
        Definition(
            bindings::uverbs_method_def {
                id: M::ID,
                flags: 0,
                num_attrs: attrs.len(),
                attrs: attrs.as_ptr().cast(),
                handler: Some(callback::<M>),
            },
            PhantomData,
        )
    }
}

/// The handler of a method.
///
/// # Safety
///
/// `attrs` is valid for the call, and belongs to a command for a device of the method's driver. The
/// core holds the device's `disassociate_srcu`.
unsafe extern "C" fn callback<M: Method>(attrs: *mut bindings::uverbs_attr_bundle) -> c_int {
    from_result(|| {
        let bundle = NonNull::new(attrs).ok_or(EINVAL)?;
        // SAFETY: By the requirements of this function. A command belongs to an open file.
        let context = from_err_ptr(unsafe {
            bindings::ib_uverbs_get_ucontext_file((*bundle.as_ptr()).__bindgen_anon_1.hdr.ufile)
        })?;
        // SAFETY: The file has a context, which is alive: it is published when it is complete, the
        // file is open, and disassociation waits for the SRCU that is held.
        let context = unsafe { Ucontext::<M::Driver>::from_raw(context) };
        let attrs = Attrs {
            bundle,
            known: M::ATTRS,
            _bundle: PhantomData,
            _driver: PhantomData,
        };
        M::call(context, &attrs)?;
        Ok(0)
    })
}
