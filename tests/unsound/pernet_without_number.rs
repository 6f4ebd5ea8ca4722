// SPDX-License-Identifier: GPL-2.0

//! A kind of data of each network namespace that says by which number it is found: it could name
//! that of another kind.

#![forbid(unsafe_code)]

use kernel::prelude::*;
use net_ext::pernet::{Lease, PerNet};

pub struct Cookie(pub u64);

net_ext::pernet_id!(Cookie);

impl PerNet for Cookie {
    fn new(lease: Lease) -> impl PinInit<Self, Error> {
        Ok::<_, Error>(Cookie(lease.cookie()))
    }
}

#[cfg(unsound)]
pub struct Other(pub [u64; 100]);

#[cfg(unsound)]
//~ unsafe_code
unsafe impl net_ext::pernet::HasId for Other {
    fn id() -> &'static net_ext::pernet::Id {
        <Cookie as net_ext::pernet::HasId>::id()
    }
}

#[cfg(unsound)]
pub struct Third(pub u64);

#[cfg(unsound)]
//~ E0277
impl PerNet for Third {
    fn new(lease: Lease) -> impl PinInit<Self, Error> {
        Ok::<_, Error>(Third(lease.cookie()))
    }
}
