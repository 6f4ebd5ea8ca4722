// SPDX-License-Identifier: GPL-2.0

//! The small types of `rdma`: access rights, GIDs, MTUs, abilities.

use kernel::prelude::*;

#[kunit_tests(rdma_types)]
mod tests {
    use kernel::str::CString;
    use rdma::{
        device::Caps,
        port::Mtu,
        Access,
        Gid, //
    };

    use super::*;

    #[test]
    fn access_is_a_set() {
        let both = Access::LOCAL_WRITE | Access::REMOTE_READ;
        assert!(both.contains(Access::LOCAL_WRITE) && both.contains(Access::REMOTE_READ));
        assert!(!both.contains(Access::REMOTE_WRITE));
        assert!(!both.contains(Access::LOCAL_WRITE | Access::REMOTE_WRITE));
        assert!(both.contains(Access::default()));
        assert_eq!(both.without(Access::REMOTE_READ), Access::LOCAL_WRITE);
        assert_eq!(both.without(Access::MW_BIND), both);
        assert_eq!(Access::from_bits(both.bits()), both);
    }

    #[test]
    fn access_has_the_bits_of_the_verbs() {
        // `enum ibv_access_flags`, which programs are compiled with.
        assert_eq!(Access::LOCAL_WRITE.bits(), 1);
        assert_eq!(Access::REMOTE_WRITE.bits(), 2);
        assert_eq!(Access::REMOTE_READ.bits(), 4);
        assert_eq!(Access::REMOTE_ATOMIC.bits(), 8);
        assert_eq!(Access::MW_BIND.bits(), 16);
        assert_eq!(Access::ZERO_BASED.bits(), 32);
        assert_eq!(Access::ON_DEMAND.bits(), 64);
        assert!(Access::OPTIONAL.contains(Access::RELAXED_ORDERING));
    }

    const MAPPED: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1]);

    #[test]
    fn gids_of_ipv4_are_known() {
        assert_eq!(MAPPED.to_ipv4(), Some([10, 77, 0, 1]));
        let mut other = MAPPED;
        other.0[9] = 1;
        assert_eq!(other.to_ipv4(), None);
        other = MAPPED;
        other.0[10] = 0;
        assert_eq!(other.to_ipv4(), None);
        assert_eq!(Gid::default().to_ipv4(), None);
    }

    #[test]
    fn gids_are_shown_as_in_sysfs() -> Result {
        let shown = CString::try_from_fmt(fmt!("{MAPPED}"))?;
        assert_eq!(shown.to_bytes(), b"0000:0000:0000:0000:0000:ffff:0a4d:0001");
        Ok(())
    }

    #[test]
    fn mtus_fit_into_packets() {
        // 14 bytes of Ethernet are not part of an interface's MTU; RoCEv2 needs 40 (IPv6), 8 (UDP),
        // 12 (BTH), up to 28 of further headers, and 4 (ICRC) of it.
        assert_eq!(Mtu::for_ethernet(9000), Mtu::B4096);
        assert_eq!(Mtu::for_ethernet(1500), Mtu::B1024);
        assert_eq!(Mtu::for_ethernet(576), Mtu::B256);
        assert_eq!(Mtu::for_ethernet(0), Mtu::B256);
        assert_eq!(Mtu::for_ethernet(u32::MAX), Mtu::B4096);
        for mtu in (0..10_000).step_by(4) {
            let fits = Mtu::for_ethernet(mtu);
            assert!(fits == Mtu::B256 || fits.bytes() + 40 < mtu);
        }
        assert!(Mtu::B256 < Mtu::B512 && Mtu::B2048 < Mtu::B4096);
        assert_eq!(Mtu::B2048.bytes(), 2048);
    }

    #[test]
    fn abilities_are_a_set() {
        let both = Caps::RNR_NAK | Caps::MEM_WINDOW;
        assert_eq!(both | Caps::RNR_NAK, both);
        assert!(both != Caps::RNR_NAK && both != Caps::default());
    }
}
