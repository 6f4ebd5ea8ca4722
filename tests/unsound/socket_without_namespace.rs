// SPDX-License-Identifier: GPL-2.0

//! A socket and a route that are kept when their network namespace has gone.

#![forbid(unsafe_code)]

use kernel::{
    prelude::*,
    sync::Arc, //
};
use net_ext::{
    ip::UdpHeaders,
    pernet::Lease,
    route::Route,
    udp::{
        Family,
        Receive,
        UdpSocket, //
    },
    Namespace,
    NetDevice, //
};

/// The end of the namespace waits for both.
pub fn open<R: Receive>(lease: &Lease, receiver: Arc<R>) -> Result<UdpSocket<R>> {
    UdpSocket::new(lease.clone(), Family::V4, 9, receiver)
}

/// And for this, wherever it is kept.
pub fn find(lease: &Lease, headers: &UdpHeaders) -> Result<Route> {
    Route::find(lease, headers, 0)
}

#[cfg(unsound)]
pub fn keep<R: Receive>(net: &Namespace, receiver: Arc<R>) -> Result<UdpSocket<R>> {
    //~ E0308
    UdpSocket::new(net, Family::V4, 9, receiver)
}

#[cfg(unsound)]
pub fn way(device: &NetDevice, headers: &UdpHeaders) -> Result<Route> {
    let net = device.namespace().ok_or(ENODEV)?;
    //~ E0308
    Route::find(&net, headers, 0)
}
