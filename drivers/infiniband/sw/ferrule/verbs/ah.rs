// SPDX-License-Identifier: GPL-2.0

//! Address handles: the way to a datagram's receiver, and its number in work requests.

use kernel::prelude::*;
use rdma::{
    ah,
    gid::GidType,
    AhAttr,
    UserCall, //
};

use crate::{
    backend::{
        Backend,
        Commands, //
    },
    verbs::{
        abi::CreateAhResp,
        address::address_vector,
        Ferrule, //
    },
};

/// An address handle.
///
/// That of a program has a number, by which its requests name it. The kernel's requests carry what
/// is in the handle, so it needs none, and can be made and destroyed in atomic context.
pub(crate) struct Ah<B: Backend> {
    av: AhAttr,
    handle: Handle<B>,
}

/// By what requests name the receiver.
enum Handle<B: Backend> {
    /// A program: by a number, which is kept here.
    Number {
        /// Dropped with the handle.
        _number: Number<B>,
    },
    /// The kernel: by what is in the handle, its route yet to be found.
    Value(B::Destination),
}

impl<B: Backend> Ah<B> {
    /// The destination of a kernel user's datagrams. Any context.
    pub(super) fn destination(&self) -> Option<B::Destination> {
        match &self.handle {
            Handle::Number { .. } => None,
            Handle::Value(destination) => Some(destination.clone()),
        }
    }
}

/// A number by which the engine finds an address. Dropping it gives the number back; that may
/// sleep.
struct Number<B: Backend> {
    commands: B::Commands,
    number: u32,
}

impl<B: Backend> Number<B> {
    /// A number for an address. Not inlined, so that it has a frame of its own.
    #[inline(never)]
    fn new(new: &ah::New<'_, Ferrule<B>>, attr: &ah::InitAttr<'_>) -> Result<Self> {
        let dev = new.device();
        let to = address_vector(dev, &attr.av, attr.sgid_attr)?;
        let number = dev.add_ah(new.pd().id(), &to)?;
        Ok(Number {
            commands: dev.commands(),
            number,
        })
    }
}

impl<B: Backend> ah::Operations for Ah<B> {
    type Driver = Ferrule<B>;

    fn create(
        new: &ah::New<'_, Ferrule<B>>,
        attr: &ah::InitAttr<'_>,
        user: Option<UserCall<'_, Ferrule<B>>>,
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
                let mut to = address_vector(dev, &attr.av, attr.sgid_attr)?;
                // The kernel's communication manager finds its own address by the VLAN, too, and
                // packets alone have one.
                let own = dev.find_gid(&attr.av.dgid, GidType::RoceV2);
                to.is_own = own.is_ok_and(|own| own.vlan().is_none());
                Handle::Value(dev.destination(&to)?)
            }
        };
        Ok(Ah {
            av: attr.av,
            handle,
        })
    }

    fn query(ah: &rdma::Ah<Ferrule<B>>) -> Result<AhAttr> {
        Ok(ah.av)
    }
}

impl<B: Backend> Drop for Number<B> {
    fn drop(&mut self) {
        self.commands.remove_ah(self.number);
    }
}
