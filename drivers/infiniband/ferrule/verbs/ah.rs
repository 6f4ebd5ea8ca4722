// SPDX-License-Identifier: GPL-2.0

//! Address handles: the way to a datagram's receiver, and its number in work requests.

use kernel::prelude::*;
use rdma::{
    ah,
    AhAttr,
    UserCall, //
};

use crate::{
    soft::Shared,
    verbs::{
        abi::CreateAhResp,
        qp::path,
        Ferrule, //
    },
};

/// An address handle.
///
/// That of a program has a number, by which its requests name it. The kernel's requests carry what
/// is in the handle, so it needs none, and can be made and destroyed in atomic context.
pub(crate) struct Ah {
    av: AhAttr,
    _number: Option<Number>,
}

/// A number by which the engine finds an address. Dropping it gives the number back; that may
/// sleep.
struct Number {
    soft: Shared,
    number: u32,
}

impl ah::Operations for Ah {
    type Driver = Ferrule;

    fn create(
        new: &ah::New<'_, Ferrule>,
        attr: &ah::InitAttr<'_>,
        user: Option<UserCall<'_, Ferrule>>,
    ) -> Result<Self> {
        let (path, route) = path(new.device(), &attr.av, attr.sgid_attr, 0, 0)?;
        let number = match user {
            Some(user) => {
                let soft = new.device().shared();
                let number = soft.add_ah(new.pd().id(), path, route)?;
                let number = Number { soft, number };
                user.respond(&CreateAhResp {
                    ah: number.number,
                    ..Default::default()
                })?;
                Some(number)
            }
            None => None,
        };
        Ok(Ah {
            av: attr.av,
            _number: number,
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
