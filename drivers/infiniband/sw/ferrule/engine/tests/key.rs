// SPDX-License-Identifier: GPL-2.0

//! Keys of memory regions: which region a key names, and for how long.

use ferrule_engine::{Error, MrChange};

use crate::sim::*;

/// Changes that leave a region as it is.
fn nothing() -> MrChange<Sim> {
    MrChange {
        pd: None,
        access: None,
        memory: None,
    }
}

/// A key that was deregistered does nothing to the region that is registered in its place.
#[test]
fn a_stale_key_names_no_region() {
    let mut w = World::new();
    let before = w.mr(64);
    drop(w.engine.remove_mr(before.key).unwrap());
    let after = loop {
        let after = w.mr(64);
        if after.key >> 8 == before.key >> 8 {
            break after;
        }
    };
    for key in [before.key, after.key ^ 1, after.key ^ 0x80] {
        assert!(w.engine.query_mr(key).is_err());
        assert!(w.engine.remove_mr(key).is_err());
        let changed = w.engine.rereg_mr(key, &mut nothing());
        assert_eq!(changed, Err(Error::NotFound));
    }
    assert_eq!(w.engine.query_mr(after.key).unwrap().key(), after.key);
    w.engine.rereg_mr(after.key, &mut nothing()).unwrap();
    w.engine.remove_mr(after.key).unwrap();
}
