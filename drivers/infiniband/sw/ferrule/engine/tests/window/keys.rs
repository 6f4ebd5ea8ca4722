// SPDX-License-Identifier: GPL-2.0

//! Keys that come back: those of regions after 256 lives, and those that the owner of a window
//! chooses.

use ferrule_engine::MwType;

use super::{bindable, bound, good, next, opens};
use crate::sim::*;

/// A window that gets the number of one that is gone begins behind the last key of that one, which
/// peers may know.
#[test]
fn a_key_of_a_window_that_is_gone_is_not_the_next_ones() {
    let mut w = World::new();
    let (_a, b) = w.pair();
    let mr = bindable(&mut w, 64);
    let old = w.mw(1, MwType::Type1);
    let mut key = old;
    for id in 0..3 {
        let new = next(key);
        good(&mut w, &b, Wr::bind(id, key, new, mr.remote(0), 64));
        key = new;
    }
    drop(w.engine.remove_mw(key).unwrap());
    let again = loop {
        let mw = w.mw(1, MwType::Type1);
        if mw >> 8 == old >> 8 {
            break mw;
        }
        drop(w.engine.remove_mw(mw).unwrap());
    };
    let mut new = again;
    for id in 3..6 {
        new = next(new);
        let before = if id == 3 { again } else { new - 1 };
        good(&mut w, &b, Wr::bind(id, before, new, mr.remote(0), 64));
        assert!(!opens(&mut w, &b, (mr.iova, key)));
        assert!(opens(&mut w, &b, (mr.iova, new)));
    }
}

/// A region's key returns after 256 regions of its index, and a window that was bound to the first
/// one knows nothing of that one.
#[test]
fn a_key_that_returns_names_another_region() {
    let mut w = World::new();
    let (_a, b) = w.pair();
    let mr = bindable(&mut w, 64);
    let (_, key) = bound(&mut w, &b, &mr);
    assert!(opens(&mut w, &b, (mr.iova, key)));
    w.engine.remove_mr(mr.key).unwrap();
    let again = loop {
        let again = bindable(&mut w, 64);
        if again.key == mr.key {
            break again;
        }
        w.engine.remove_mr(again.key).unwrap();
    };
    let has_windows = |w: &World| w.engine.query_mr(again.key).unwrap().has_windows();
    assert!(!opens(&mut w, &b, (again.iova, key)));
    // Bound to it now, the window was not counted twice, and it is not when it goes elsewhere.
    good(&mut w, &b, Wr::bind(2, key, next(key), again.remote(0), 64));
    assert!(opens(&mut w, &b, (again.iova, next(key))));
    assert!(has_windows(&w));
    w.engine.remove_mw(key).unwrap();
    assert!(!has_windows(&w));
    w.engine.remove_mr(again.key).unwrap();
}
