// SPDX-License-Identifier: GPL-2.0

//! `rdma::gate`, which is private to that crate: this one compiles the file, too.

use kernel::prelude::*;

#[allow(
    dead_code,
    reason = "what that crate keeps behind gates is not tried here"
)]
#[path = "../../rust/kernel/infiniband/gate.rs"]
mod private;

#[kunit_tests(rdma_gate)]
mod tests {
    use kernel::sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        Arc, //
    };
    use kernel_ext::task::{
        cond_resched,
        Kthread, //
    };

    use super::{
        private::Gate,
        *, //
    };

    #[pin_data]
    struct Shared {
        #[pin]
        gate: Gate,
        inside: Atomic<u32>,
        passed: Atomic<u32>,
        go: Atomic<u32>,
    }

    impl Shared {
        fn make() -> Result<Arc<Self>> {
            Arc::pin_init(
                pin_init!(Shared {
                    gate <- Gate::new(),
                    inside: Atomic::new(0),
                    passed: Atomic::new(0),
                    go: Atomic::new(0),
                }),
                GFP_KERNEL,
            )
        }
    }

    #[test]
    fn open_until_closed() -> Result {
        let shared = Shared::make()?;
        let mut visits = 0;
        shared.gate.pass(|| visits += 1);
        // A visitor may meet another.
        shared.gate.pass(|| shared.gate.pass(|| visits += 1));
        shared.gate.close();
        shared.gate.pass(|| visits += 100);
        assert_eq!(visits, 2);
        Ok(())
    }

    #[test]
    fn closing_waits_for_who_is_inside() -> Result {
        let shared = Shared::make()?;
        let theirs = shared.clone();
        let visitor = Kthread::spawn(c"kunit", move |_| {
            theirs.gate.pass(|| {
                theirs.inside.store(1, Release);
                while theirs.go.load(Acquire) == 0 {
                    cond_resched();
                }
                theirs.inside.store(0, Release);
            });
        })?;
        while shared.inside.load(Acquire) == 0 {
            cond_resched();
        }
        let theirs = shared.clone();
        let opener = Kthread::spawn(c"kunit", move |_| {
            // Nobody gets in once it is being closed.
            loop {
                let mut open = false;
                theirs.gate.pass(|| open = true);
                if !open {
                    break;
                }
                cond_resched();
            }
            theirs.go.store(1, Release);
        })?;
        shared.gate.close();
        assert_eq!(shared.inside.load(Acquire), 0);
        assert_eq!(shared.go.load(Acquire), 1);
        visitor.stop();
        opener.stop();
        Ok(())
    }

    #[test]
    fn closing_against_a_crowd() -> Result {
        for _ in 0..20 {
            let shared = Shared::make()?;
            let theirs = shared.clone();
            let crowd = Kthread::spawn(c"kunit", move |current| {
                while !current.should_stop() {
                    theirs.gate.pass(|| {
                        theirs.inside.store(1, Release);
                        theirs.passed.fetch_add(1, Full);
                        theirs.inside.store(0, Release);
                    });
                    cond_resched();
                }
            })?;
            while shared.passed.load(Acquire) < 10 {
                cond_resched();
            }
            shared.gate.close();
            assert_eq!(shared.inside.load(Acquire), 0);
            let passed = shared.passed.load(Acquire);
            crowd.stop();
            assert_eq!(shared.passed.load(Acquire), passed);
        }
        Ok(())
    }
}
