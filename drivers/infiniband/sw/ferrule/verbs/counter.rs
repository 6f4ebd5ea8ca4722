// SPDX-License-Identifier: GPL-2.0

//! Sets of counters to which `rdma statistic qp` binds queue pairs: the driver's part of `struct
//! rdma_counter`.

use rdma::counter::Functions;

use crate::{
    backend::{
        Backend,
        Commands, //
    },
    verbs::Ferrule, //
};

/// The functions for the devices of a backend, if it counts in sets.
pub(super) const fn functions<B: Backend>() -> Option<Functions<Ferrule<B>>> {
    if !B::HAS_QP_COUNTERS {
        return None;
    }
    Some(Functions {
        add: |dev| dev.commands().add_counter_set(),
        remove: |dev, set| dev.commands().remove_counter_set(set),
        bind: |qp, set| qp.commands().bind_counters(qp.qpn(), set),
        read: |dev, set, values| dev.commands().read_counter_set(set, values),
    })
}
