// SPDX-License-Identifier: GPL-2.0

//! `rdma_loop`: a second driver on the crate `rdma`, which shows that the abstractions are nobody's
//! insides: `driver` is what stands on them, `queue` what a device would do.
//!
//! It is small enough to be read in one go, and has not one line of unsafe code. Its queue pairs
//! send to themselves: a kick takes send requests and receive requests from a ring that the program
//! has mapped, copies from memory region to memory region, and writes completions into another
//! ring. `tests/guest/rdma_loop.c` is the program, and `rdma_loop/rdma_loop.h` there has the same
//! layouts.
//!
//! There are two kinds of devices: those of `rdma link`, for which the processor copies, and those
//! of a PCI function (`function`), whose engine does (`edu`).

use kernel::prelude::*;

#[forbid(unsafe_code)]
mod driver;
#[forbid(unsafe_code)]
mod edu;
#[forbid(unsafe_code)]
mod function;
#[forbid(unsafe_code)]
mod queue;

#[pin_data]
struct Module {
    #[pin]
    _functions: kernel_ext::pci::Registration<function::Function>,
    #[pin]
    _registration: rdma::Registration<driver::Loop>,
}

impl kernel::InPlaceModule for Module {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _registration <- rdma::Registration::new(),
            _functions <- kernel_ext::pci::Registration::new(module),
        })
    }
}

module! {
    type: Module,
    name: "rdma_loop",
    authors: ["The ferrule authors"],
    description: "RDMA provider whose queue pairs send to themselves",
    license: "GPL",
    alias: ["rdma-link-loop"],
}
