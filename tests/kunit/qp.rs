// SPDX-License-Identifier: GPL-2.0

//! `rdma::qp`.

use kernel::prelude::*;

#[kunit_tests(rdma_qp)]
mod tests {
    use rdma::qp::{
        modify_is_ok,
        AttrMask,
        State,
        Type, //
    };

    /// `enum ibv_qp_attr_mask`.
    const STATE: AttrMask = AttrMask::from_bits(1 << 0);
    const ACCESS_FLAGS: AttrMask = AttrMask::from_bits(1 << 3);
    const PKEY_INDEX: AttrMask = AttrMask::from_bits(1 << 4);
    const PORT: AttrMask = AttrMask::from_bits(1 << 5);
    const QKEY: AttrMask = AttrMask::from_bits(1 << 6);

    #[test]
    fn attributes_of_init_depend_on_the_service() {
        // IBA volume 1, table 91.
        let of_all = STATE | PKEY_INDEX | PORT;
        let connected = of_all | ACCESS_FLAGS;
        let datagram = of_all | QKEY;
        let is_ok = |qp_type, mask| modify_is_ok(State::Reset, State::Init, qp_type, mask);
        assert!(is_ok(Type::Rc, connected) && is_ok(Type::Uc, connected));
        assert!(is_ok(Type::Ud, datagram));
        assert!(!is_ok(Type::Rc, datagram) && !is_ok(Type::Ud, connected));
        assert!(!is_ok(Type::Rc, of_all) && !is_ok(Type::Ud, of_all));
    }

    #[test]
    fn every_state_leads_to_reset_and_error() {
        // Linux knows no way from Reset to Error.
        assert!(modify_is_ok(State::Reset, State::Reset, Type::Rc, STATE));
        for state in [
            State::Init,
            State::Rtr,
            State::Rts,
            State::Sqd,
            State::Sqe,
            State::Err,
        ] {
            assert!(modify_is_ok(state, State::Reset, Type::Rc, STATE));
            assert!(modify_is_ok(state, State::Err, Type::Rc, STATE));
            assert!(!modify_is_ok(state, State::Sqe, Type::Rc, STATE));
        }
    }

    #[test]
    fn no_state_is_left_out() {
        assert!(!modify_is_ok(State::Reset, State::Rtr, Type::Rc, STATE));
        assert!(!modify_is_ok(State::Reset, State::Rts, Type::Rc, STATE));
        assert!(!modify_is_ok(State::Init, State::Rts, Type::Rc, STATE));
        assert!(!modify_is_ok(State::Err, State::Rts, Type::Rc, STATE));
        assert_eq!(State::default(), State::Reset);
    }

    #[test]
    fn masks_are_sets() {
        assert_eq!((STATE | PORT).bits(), 0x21);
        assert_eq!(AttrMask::from_bits(0x21), STATE | PORT);
        assert_eq!(AttrMask::default().bits(), 0);
    }
}
