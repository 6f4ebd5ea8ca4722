// SPDX-License-Identifier: GPL-2.0

//! Address handles: the way to a datagram's receiver, and its number in work requests.

use kernel::prelude::*;
use rdma::{
    ah,
    AhAttr,
    UserCall, //
};

use crate::{
    soft::{
        posting::Destination,
        Shared, //
    },
    verbs::{
        abi::CreateAhResp,
        path::path,
        Ferrule, //
    },
};

/// An address handle.
///
/// That of a program has a number, by which its requests name it. The kernel's requests carry what
/// is in the handle, so it needs none, and can be made and destroyed in atomic context.
pub(crate) struct Ah {
    av: AhAttr,
    handle: Handle,
}

/// By what requests name the receiver.
enum Handle {
    /// A program: by a number, which is kept here.
    Number {
        /// Dropped with the handle.
        _number: Number,
    },
    /// The kernel: by what is in the handle, its route yet to be found.
    Value(Destination),
}

impl Ah {
    /// The destination of a kernel user's datagrams. Any context.
    pub(super) fn destination(&self) -> Option<Destination> {
        match &self.handle {
            Handle::Number { .. } => None,
            Handle::Value(destination) => Some(destination.again()),
        }
    }
}

/// A number by which the engine finds an address. Dropping it gives the number back; that may
/// sleep.
struct Number {
    soft: Shared,
    number: u32,
}

impl Number {
    /// A number for an address. Not inlined, so that it has a frame of its own.
    #[inline(never)]
    fn new(new: &ah::New<'_, Ferrule>, attr: &ah::InitAttr<'_>) -> Result<Self> {
        let dev = new.device();
        let (path, route) = path(dev, &attr.av, attr.sgid_attr, |sgid| {
            dev.route(&attr.av, sgid, 0, 0)
        })?;
        let soft = dev.shared();
        let number = soft.add_ah(new.pd().id(), path, route)?;
        Ok(Number { soft, number })
    }
}

impl ah::Operations for Ah {
    type Driver = Ferrule;

    fn create(
        new: &ah::New<'_, Ferrule>,
        attr: &ah::InitAttr<'_>,
        user: Option<UserCall<'_, Ferrule>>,
    ) -> Result<Self> {
        let dev = new.device();
        let handle = match user {
            Some(user) => {
                let number = Number::new(new, attr)?;
                user.respond(&CreateAhResp {
                    ah: number.number,
                    ..Default::default()
                })?;
                Handle::Number { _number: number }
            }
            // The context may be atomic.
            None => {
                let (path, route) = path(dev, &attr.av, attr.sgid_attr, |sgid| {
                    dev.unsought_route(&attr.av, sgid)
                })?;
                Handle::Value(Destination::new(path, route))
            }
        };
        Ok(Ah {
            av: attr.av,
            handle,
        })
    }

    fn query(ah: &rdma::Ah<Ferrule>) -> Result<AhAttr> {
        Ok(ah.av)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.soft.remove_ah(self.number);
    }
}
