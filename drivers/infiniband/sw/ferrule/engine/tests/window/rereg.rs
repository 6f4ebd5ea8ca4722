// SPDX-License-Identifier: GPL-2.0

//! Regions registered anew: their keys, and their windows.

use ferrule_engine::{Access, Error, Memory, MrChange, MwType};

use super::{bindable, good, next, opens};
use crate::sim::*;

#[test]
fn region_registered_anew_keeps_its_key() {
    let mut w = World::new();
    let (a, b) = w.pair();
    let mine = w.mr(64);
    mine.fill(1);
    let (first, second) = (bindable(&mut w, 64), memory::shared(32));
    // Other memory, at another address.
    let mut change = MrChange {
        pd: None,
        access: None,
        memory: Some(Memory {
            iova: 0x1000,
            length: 32,
            region: memory::SimRegion {
                memory: second.clone(),
                start: 0,
                length: 32,
                broken: Default::default(),
                absent: Default::default(),
                absent_from: Default::default(),
                askers: Default::default(),
                next: Default::default(),
                pieces: Default::default(),
            },
        }),
    };
    w.engine.rereg_mr(first.key, &mut change).unwrap();
    // The old memory comes back.
    assert_eq!(change.memory.unwrap().iova, first.iova);
    good(
        &mut w,
        &a,
        Wr::write(1, &[mine.sge(0, 32)], (0x1000, first.key)),
    );
    assert_eq!(*second.borrow(), mine.bytes(0, 32));
    assert!(!opens(&mut w, &b, (first.iova, first.key)));
    assert!(!opens(&mut w, &b, (0x1019, first.key)));
    // Without the right, and with it again.
    for access in [Access::REMOTE_READ, BINDABLE] {
        let mut change = MrChange {
            pd: None,
            access: Some(access),
            memory: None,
        };
        w.engine.rereg_mr(first.key, &mut change).unwrap();
        assert_eq!(opens(&mut w, &b, (0x1000, first.key)), access == BINDABLE);
    }
    // Not while a window is bound to it.
    let mw = w.mw(1, MwType::Type2);
    let bind = Wr::bind(2, mw, next(mw), (0x1000, first.key), 8);
    good(&mut w, &b, bind);
    let mut change = MrChange {
        pd: Some(2),
        access: None,
        memory: None,
    };
    let busy = w.engine.rereg_mr(first.key, &mut change);
    assert_eq!(busy, Err(Error::Busy));
    good(&mut w, &b, Wr::local_inv(3, next(mw)));
    // In another domain.
    w.engine.rereg_mr(first.key, &mut change).unwrap();
    assert!(!opens(&mut w, &b, (0x1000, first.key)));
    assert_eq!(
        w.engine.rereg_mr(first.key ^ 1, &mut change),
        Err(Error::NotFound)
    );
}
