// SPDX-License-Identifier: GPL-2.0

//! States, errors, queue pairs: the numbers that stand for them.

use ferrule_engine::{Error, State};

use crate::sim::*;

/// `enum ib_qp_state` of the verbs.
#[test]
fn states_have_the_numbers_of_the_verbs() {
    for (number, state) in (0..).zip(State::ALL) {
        assert_eq!(State::try_from(number), Ok(state));
        assert_eq!(state as u32, number);
    }
    assert_eq!(State::try_from(7), Err(Error::Invalid));
}

/// As `errno(3)` names them on Linux.
#[test]
fn refusals_have_the_error_numbers_of_linux() {
    for (error, number) in [
        (Error::NoMemory, 12),
        (Error::Full, 12),
        (Error::Busy, 16),
        (Error::Invalid, 22),
        (Error::NotFound, 22),
        (Error::NotSupported, 95),
    ] {
        assert_eq!(error.errno(), number);
    }
}

#[test]
fn numbers_are_reused_late_and_never_mean_another() {
    let mut w = World::new();
    let cq = w.cq(16);
    let first = w.qp(&cq, &cq);
    assert_eq!(first.id.number, 2, "0 and 1 are special");
    let mut seen = std::collections::BTreeSet::new();
    let mut last = first.id;
    for _ in 0..10_000 {
        assert!(seen.insert(last.number));
        drop(w.engine.remove_qp(last.number).unwrap());
        assert_eq!(w.engine.query_qp(last.number), Err(Error::NotFound));
        let next = w.qp(&cq, &cq).id;
        assert_ne!(next.number & 0xffff, last.number & 0xffff);
        last = next;
    }
}
