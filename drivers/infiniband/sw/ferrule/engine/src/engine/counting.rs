// SPDX-License-Identifier: GPL-2.0

//! Sets of counters, to which queue pairs are bound.

use crate::{
    base::{
        counters::{
            CounterSet,
            Counters, //
        },
        error::{
            Error,
            Refused, //
        },
        host::Host,
        id::{
            CountedAt,
            Vport, //
        },
    },
    engine::Engine,
};

impl<H: Host> Engine<H> {
    /// The counters, summed over all virtual ports and sets.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.add_counters(&mut sum);
        sum
    }

    /// Adds what happened so far to a sum, where a copy of it would be too large for the stack.
    pub fn add_counters(&self, sum: &mut Counters) {
        self.counters.add_to(sum);
    }

    /// Adds what was counted in no set.
    pub fn add_unbound_counters(&self, sum: &mut Counters) {
        self.counters.add_unbound_to(sum);
    }

    /// Adds what was counted in a set.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn add_counters_of_set(&self, set: CountedAt, sum: &mut Counters) -> Result<(), Error> {
        self.counters.add_set_to(set, sum)
    }

    /// The counters of one virtual port, without those of its sets.
    pub fn counters_of(&self, vport: Vport) -> Counters {
        self.counters.read(vport)
    }

    /// Adds a set of counters, to which no queue pair is bound.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    pub fn add_counter_set(
        &mut self,
        set: H::Box<CounterSet>,
    ) -> Result<CountedAt, Refused<H::Box<CounterSet>>> {
        self.counters.add(set)
    }

    /// Removes a set of counters. Its counts stay in the sum of all.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while queue pairs are bound to it, [`Error::NotFound`].
    pub fn remove_counter_set(&mut self, set: CountedAt) -> Result<H::Box<CounterSet>, Error> {
        self.counters.remove(set)
    }

    /// Binds a queue pair to a set of counters, in which it counts from now on; or to none, so that
    /// it counts at its virtual port, as at first.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such queue pair, or no such set at its virtual port.
    pub fn bind_counters(&mut self, qpn: u32, set: Option<CountedAt>) -> Result<(), Error> {
        let core = &mut self.qps.get_mut(qpn).ok_or(Error::NotFound)?.core;
        let vport = core.init.vport;
        let to = set.unwrap_or(vport.into());
        self.counters.bind(vport, core.counted_at, to)?;
        core.counted_at = to;
        Ok(())
    }
}
