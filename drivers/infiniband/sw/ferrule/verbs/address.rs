// SPDX-License-Identifier: GPL-2.0

//! Address vectors.

use kernel::prelude::*;
use rdma::{
    gid::GidType,
    AhAttr,
    Device,
    GidAttr, //
};

use super::Ferrule;
use crate::backend::{
    object::AddressVector,
    Backend, //
};

/// An address vector for the backend.
///
/// # Errors
///
/// `EINVAL` without a GRH: RoCE has no other addresses than global ones (IBA volume 1, A17.4.3).
pub(super) fn address_vector<'a, B: Backend>(
    dev: &Device<Ferrule<B>>,
    attr: &'a AhAttr,
    sgid: Option<&'a GidAttr>,
) -> Result<AddressVector<'a>> {
    if !attr.grh {
        return Err(EINVAL);
    }
    Ok(AddressVector {
        attr,
        sgid: sgid.ok_or(EINVAL)?,
        is_own: dev.find_gid(&attr.dgid, GidType::RoceV2).is_ok(),
    })
}
