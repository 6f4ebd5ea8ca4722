// SPDX-License-Identifier: GPL-2.0

//! A driver's methods in the form that the core reads: a tree of pointers.
//!
//! The methods and all below them are constant, and lie in the module
//! ([`Definition`](crate::method::Definition)). The object that has them lies in each device.

use kernel::types::Opaque;

use crate::{
    bindings,
    Driver, //
};

/// The root of the tree in the form that the core reads.
#[repr(C)]
struct Root {
    definitions: [bindings::uapi_definition; 2],
    object: bindings::uverbs_object_def,
}

/// The place of the tree's root in a device, where it lives as long as the core may read it.
pub(crate) struct Tree(Opaque<Root>);

impl Tree {
    /// A place with no description in it.
    pub(crate) fn empty() -> Self {
        Tree(Opaque::zeroed())
    }

    /// Describes the driver's methods at `this`, and returns the value for `driver_def` of the
    /// device.
    ///
    /// # Safety
    ///
    /// - `this` is valid for writing, stays in place, and nobody else uses it during the call.
    /// - It belongs to a device of the driver `D`, and the core reads it only as that device's
    ///   `driver_def`.
    pub(crate) unsafe fn describe<D: Driver>(
        this: *const Self,
    ) -> *const bindings::uapi_definition {
        // SAFETY: `Tree` has no other field, and the memory is valid by the requirements of this
        // function.
        let root = Opaque::cast_into(unsafe { &raw const (*this).0 });
        // SAFETY: By the requirements of this function the memory is valid for writing, and nobody
        // else uses it meanwhile. All zeroes are valid values of these structures. Pointers into it
        // stay valid, for it stays in place. The core calls the methods, whose handlers are for the
        // driver `D`, with commands of that device alone, and holds its `disassociate_srcu` then.
        unsafe {
            root.write_bytes(0, 1);

            let object = &raw mut (*root).object;
            (*object).id = bindings::uverbs_default_objects_UVERBS_OBJECT_DEVICE as u16;
            (*object).num_methods = D::METHODS.len();
            // `Definition` is transparent, and the methods are constant.
            (*object).methods = D::METHODS.as_ptr().cast();

            // The second definition is the end of the list, which is all zeroes.
            let definition = (&raw mut (*root).definitions).cast::<bindings::uapi_definition>();
            (*definition).kind = bindings::uapi_definition_kind_UAPI_DEF_CHAIN_OBJ_TREE as u8;
            let start = (*definition).__bindgen_anon_1.object_start.as_mut();
            start.object_id = (*object).id;
            (*definition).__bindgen_anon_2.chain_obj_tree = object;
            definition
        }
    }
}
