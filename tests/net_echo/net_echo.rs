// SPDX-License-Identifier: GPL-2.0

//! `net_echo`: a user of the crate `net_ext` that is no RDMA driver.
//!
//! It has a UDP port in each network namespace and answers what comes there. Like the other test
//! module it has not one line of unsafe code. `tests/guest/net_echo.py` asks, and knows the same
//! questions.

use kernel::prelude::*;
use net_ext::{
    notifier::{
        Devices,
        Ipv4Addresses,
        Ipv6Addresses,
        Notifier, //
    },
    pernet, //
};

#[forbid(unsafe_code)]
mod echo;

/// The ports go first, the watchers after them.
#[pin_data]
struct Module {
    #[pin]
    _ports: pernet::Registration<echo::Ports>,
    #[pin]
    _devices: Notifier<Devices, echo::Count>,
    #[pin]
    _ipv4: Notifier<Ipv4Addresses, echo::Count>,
    #[pin]
    _ipv6: Notifier<Ipv6Addresses, echo::Count>,
}

impl kernel::InPlaceModule for Module {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _ports <- pernet::Registration::new(),
            _devices <- Notifier::new(echo::Count),
            _ipv4 <- Notifier::new(echo::Count),
            _ipv6 <- Notifier::new(echo::Count),
        })
    }
}

module! {
    type: Module,
    name: "net_echo",
    authors: ["The ferrule authors"],
    description: "UDP port that answers, in each network namespace",
    license: "GPL",
}
