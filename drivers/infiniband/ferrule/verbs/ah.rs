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
        Ferrule, //
    },
};

/// An address handle.
pub(crate) struct Ah {
    soft: Shared,
    id: u32,
    av: AhAttr,
}

impl ah::Operations for Ah {
    type Driver = Ferrule;

    fn create(
        new: &ah::New<'_, Ferrule>,
        attr: &ah::InitAttr<'_>,
        user: Option<UserCall<'_, Ferrule>>,
    ) -> Result<Self> {
        // RoCE has no other addresses than global ones (IBA volume 1, A17.4.3).
        if !attr.av.grh {
            return Err(EINVAL);
        }
        let soft = new.device().shared();
        let id = soft.alloc_ah()?;
        let ah = Ah {
            soft,
            id,
            av: attr.av,
        };
        if let Some(user) = user {
            user.respond(&CreateAhResp {
                ah: id,
                ..Default::default()
            })?;
        }
        Ok(ah)
    }

    fn query(ah: &rdma::Ah<Ferrule>) -> Result<AhAttr> {
        Ok(ah.av)
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        self.soft.free_ah(self.id);
    }
}
