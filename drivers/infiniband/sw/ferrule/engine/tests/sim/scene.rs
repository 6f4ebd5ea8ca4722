// SPDX-License-Identifier: GPL-2.0

//! The scene of most tests of packets: a connection across a link, and memory at either end.

use std::marker::PhantomData;

use ferrule_engine::Modify;

use super::connect::End;
use super::network::{Faults, Link};
use super::program::{TestCq, TestMr, TestQp};
use super::world::World;

/// A connection on a network without faults. `Of` names the tests whose it is: each adds what it
/// does with it.
pub struct Scene<Of> {
    pub link: Link,
    pub ends: [End; 2],
    pub memory: [TestMr; 2],
    tests: PhantomData<Of>,
}

impl<Of> Scene<Of> {
    /// With `size` bytes of memory at either end, and as `change` has the attributes.
    pub fn with(size: usize, change: impl Fn(&mut Modify)) -> Self {
        Self::of(size, |world, cq| world.qp(cq, cq), change)
    }

    /// Of queue pairs that `make` makes.
    pub fn of(
        size: usize,
        make: impl Fn(&mut World, &TestCq) -> TestQp,
        change: impl Fn(&mut Modify),
    ) -> Self {
        let mut link = Link::new(1, Faults::default(), false);
        let ends = link.pair(make, change);
        let memory = [0, 1].map(|i| link.worlds[i].mr(size));
        Self {
            link,
            ends,
            memory,
            tests: PhantomData,
        }
    }
}
