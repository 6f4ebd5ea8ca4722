// SPDX-License-Identifier: GPL-2.0

//! `rdma::UnregisteredDevice` and `rdma::Registration`: each value is dropped once.

use kernel::prelude::*;

#[kunit_tests(rdma_unregistered)]
mod tests {
    use kernel::sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    };
    use kernel_ext::error::code::EOPNOTSUPP;
    use net_ext::{
        Namespace,
        NetDevice, //
    };
    use rdma::*;

    use super::*;

    /// A driver that makes devices, and nothing on them.
    struct Bare;

    /// Counts the drops.
    struct Data(Arc<Atomic<u32>>);

    impl Drop for Data {
        fn drop(&mut self) {
            self.0.fetch_add(1, Full);
        }
    }

    #[vtable]
    impl Driver for Bare {
        const ID: u32 = 0x4241_5245; // "BARE"
        const NAME: &'static CStr = c"ferrule_kunit";
        const ABI_VERSION: u32 = 1;

        type Data = Data;
        type Ucontext = Nothing;
        type Pd = Nothing;
        type Mr = Nothing;
        type Cq = Nothing;
        type Qp = Nothing;
        type Ah = Unsupported<Self>;
        type Srq = Unsupported<Self>;
        type Mw = Unsupported<Self>;
        type Dm = Unsupported<Self>;
        type Xrcd = Unsupported<Self>;
        type Flow = Unsupported<Self>;

        fn query_device(_dev: &Device<Self>) -> Result<device::Attr> {
            Ok(device::Attr::default())
        }

        fn query_port(_dev: &Device<Self>, _attr: &mut port::Attr) -> Result {
            Ok(())
        }
    }

    #[vtable]
    impl Link for Bare {
        fn new_link(_offered: &Offered<'_, Self>, _name: &CStr, _netdev: &NetDevice) -> Result {
            Err(EOPNOTSUPP)
        }
    }

    /// An object that is never made.
    struct Nothing;

    #[vtable]
    impl ucontext::Operations for Nothing {
        type Driver = Bare;

        fn alloc(_new: &ucontext::New<'_, Bare>, _udata: Udata<'_>) -> Result<Self> {
            Err(EOPNOTSUPP)
        }
    }

    #[vtable]
    impl pd::Operations for Nothing {
        type Driver = Bare;

        fn alloc(_new: &pd::New<'_, Bare>, _user: Option<UserCall<'_, Bare>>) -> Result<Self> {
            Err(EOPNOTSUPP)
        }
    }

    #[vtable]
    impl mr::Operations for Nothing {
        type Driver = Bare;

        fn reg_user(
            _new: &mut mr::New<'_, Bare>,
            _region: &mr::UserRegion,
            _user: UserCall<'_, Bare>,
        ) -> Result<Self> {
            Err(EOPNOTSUPP)
        }
    }

    #[vtable]
    impl cq::Operations for Nothing {
        type Driver = Bare;

        fn create(
            _new: &mut cq::New<'_, Bare>,
            _attr: &cq::InitAttr,
            _user: Option<UserCall<'_, Bare>>,
        ) -> Result<Self> {
            Err(EOPNOTSUPP)
        }
    }

    #[vtable]
    impl qp::Operations for Nothing {
        type Driver = Bare;

        fn create(
            _new: &mut qp::New<'_, Bare>,
            _attr: &qp::InitAttr,
            _user: Option<UserCall<'_, Bare>>,
        ) -> Result<Self> {
            Err(EOPNOTSUPP)
        }

        fn modify(
            _qp: &Qp<Bare>,
            _attr: &qp::ModifyAttr<'_>,
            _user: Option<UserCall<'_, Bare>>,
        ) -> Result {
            Err(EOPNOTSUPP)
        }

        fn query(_qp: &Qp<Bare>, _attr: &mut qp::QueryAttr) -> Result {
            Err(EOPNOTSUPP)
        }
    }

    fn make(drops: &Arc<Atomic<u32>>) -> Result<UnregisteredDevice<Bare>> {
        let info = device::Info {
            node_guid: 0x0102_0304_0506_0708,
            num_comp_vectors: 1,
        };
        let drops = drops.clone();
        // SAFETY: The value is written, whole, where it is asked for.
        let data = unsafe {
            pin_init::init_from_closure::<_, Error>(move |slot: *mut Data| {
                slot.write(Data(drops));
                Ok(())
            })
        };
        UnregisteredDevice::new(Namespace::init().try_hold().ok_or(ENODEV)?, info, data)
    }

    #[test]
    fn dropping_a_device_drops_its_data() -> Result {
        let drops = Arc::new(Atomic::new(0u32), GFP_KERNEL)?;
        let device = make(&drops)?;
        assert_eq!(drops.load(Acquire), 0);
        drop(device);
        assert_eq!(drops.load(Acquire), 1);
        Ok(())
    }

    #[test]
    fn data_that_fail_are_not_dropped() -> Result {
        let info = device::Info {
            node_guid: 1,
            num_comp_vectors: 1,
        };
        // SAFETY: The closure fails, and has written nothing.
        let data =
            unsafe { pin_init::init_from_closure::<_, Error>(|_slot: *mut Data| Err(ENODEV)) };
        let net = Namespace::init().try_hold().ok_or(ESRCH)?;
        assert_eq!(
            UnregisteredDevice::<Bare>::new(net, info, data).err(),
            Some(ENODEV)
        );
        Ok(())
    }

    #[test]
    fn a_device_without_a_netdev_goes_with_its_driver() -> Result {
        let drops = Arc::new(Atomic::new(0u32), GFP_KERNEL)?;
        let registration = KBox::pin_init(Registration::<Bare>::new(), GFP_KERNEL)?;
        let registered = make(&drops)?.register(&registration.offered(), c"ferrule_kunit%d");
        drop(registration);
        assert!(registered.is_ok());
        assert_eq!(drops.load(Acquire), 1);
        Ok(())
    }

    #[test]
    fn a_name_is_no_other_format_than_that_of_a_number() -> Result {
        let drops = Arc::new(Atomic::new(0u32), GFP_KERNEL)?;
        let registration = KBox::pin_init(Registration::<Bare>::new(), GFP_KERNEL)?;
        let offered = registration.offered();
        for name in [c"kunit%s", c"kunit%", c"kunit%%", c"%d%d", c"%n%d"] {
            let refused = make(&drops)?.register(&offered, name);
            assert_eq!(refused.err(), Some(EINVAL));
        }
        assert_eq!(drops.load(Acquire), 5);
        Ok(())
    }

    #[test]
    fn a_driver_may_come_again() -> Result {
        for _ in 0..3 {
            drop(KBox::pin_init(Registration::<Bare>::new(), GFP_KERNEL)?);
        }
        Ok(())
    }
}
