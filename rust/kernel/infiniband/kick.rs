// SPDX-License-Identifier: GPL-2.0

//! The method [`Driver::KICK_METHOD`](crate::Driver::KICK_METHOD): a command of the device file that belongs to no
//! object, has no attributes and so costs as little as a command can.

use core::ptr;

use kernel::{
    prelude::*,
    types::Opaque, //
};

use crate::bindings;

/// The function that carries a method out.
pub(crate) type Handler = unsafe extern "C" fn(*mut bindings::uverbs_attr_bundle) -> c_int;

/// The description of the method in the form that the core reads, which is a tree of pointers.
#[repr(C)]
struct Description {
    definitions: [bindings::uapi_definition; 2],
    object: bindings::uverbs_object_def,
    methods: [*const bindings::uverbs_method_def; 1],
    method: bindings::uverbs_method_def,
}

/// The place of the description in a device, where it lives as long as the core may read it.
pub(crate) struct Kick(Opaque<Description>);

impl Kick {
    /// A place with no description in it.
    pub(crate) fn undescribed() -> Self {
        Kick(Opaque::zeroed())
    }

    /// Describes the method `id` at `this`, and returns the value for `driver_def` of the device.
    ///
    /// # Safety
    ///
    /// - `this` is valid for writing, and stays in place.
    /// - `handler` may be called with any command for the device, while the core holds the device's
    ///   `disassociate_srcu`.
    pub(crate) unsafe fn describe(
        this: *const Self,
        id: u16,
        handler: Handler,
    ) -> *const bindings::uapi_definition {
        // SAFETY: `Kick` has no other field, and the memory is valid by the requirements of this
        // function.
        let description = Opaque::cast_into(unsafe { &raw const (*this).0 });
        // SAFETY: The memory is valid for writing by the requirements of this function, nobody else uses it
        // yet, and all zeroes are valid values of these structures. Pointers into it stay valid, for it
        // stays in place.
        unsafe {
            description.write_bytes(0, 1);

            let method = &raw mut (*description).method;
            (*method).id = id;
            // With no attributes there is nothing to point to, but null would mean no method.
            (*method).attrs = ptr::NonNull::dangling().as_ptr();
            (*method).handler = Some(handler);
            (*description).methods = [method];

            let object = &raw mut (*description).object;
            (*object).id = bindings::uverbs_default_objects_UVERBS_OBJECT_DEVICE as u16;
            (*object).num_methods = 1;
            (*object).methods = (&raw const (*description).methods).cast();

            // The second definition is the end of the list, which is all zeroes.
            let definition =
                (&raw mut (*description).definitions).cast::<bindings::uapi_definition>();
            (*definition).kind = bindings::uapi_definition_kind_UAPI_DEF_CHAIN_OBJ_TREE as u8;
            let start = (*definition).__bindgen_anon_1.object_start.as_mut();
            start.object_id = (*object).id;
            (*definition).__bindgen_anon_2.chain_obj_tree = object;
            definition
        }
    }
}
