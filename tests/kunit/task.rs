// SPDX-License-Identifier: GPL-2.0

//! `kernel_ext::task`.

use kernel::prelude::*;

#[kunit_tests(kernel_ext_task)]
mod tests {
    use kernel::{
        sync::{
            atomic::{
                Acquire,
                Atomic,
                Full, //
            },
            Arc, //
        },
        types::ScopeGuard, //
    };
    use kernel_ext::{
        new_waitqueue,
        sync::WaitQueue,
        task::Kthread, //
    };

    use super::*;

    fn counter() -> Result<Arc<Atomic<u32>>> {
        Ok(Arc::new(Atomic::new(0), GFP_KERNEL)?)
    }

    /// Adds one to the counter when its return value is dropped.
    fn count_drop(counter: &Arc<Atomic<u32>>) -> impl Send {
        let counter = counter.clone();
        ScopeGuard::new(move || {
            counter.fetch_add(1, Full);
        })
    }

    fn wait_for(counter: &Atomic<u32>, value: u32) {
        while counter.load(Acquire) != value {
            kernel_ext::task::cond_resched();
        }
    }

    #[test]
    fn stop_wakes_and_waits() -> Result {
        let (begun, ended) = (counter()?, counter()?);
        let theirs = (begun.clone(), ended.clone());
        let thread = Kthread::spawn(c"kunit", move |current| {
            theirs.0.fetch_add(1, Full);
            pin_init::stack_pin_init!(let queue = new_waitqueue!("kunit"));
            queue.wait_idle(|| current.should_stop());
            theirs.1.fetch_add(1, Full);
        })?;
        wait_for(&begun, 1);
        assert_eq!(ended.load(Acquire), 0);
        thread.stop();
        assert_eq!(ended.load(Acquire), 1);
        Ok(())
    }

    #[test]
    fn dropping_stops() -> Result {
        let (begun, ended) = (counter()?, counter()?);
        let theirs = (begun.clone(), ended.clone());
        let thread = Kthread::spawn(c"kunit", move |current| {
            theirs.0.fetch_add(1, Full);
            while !current.should_stop() {
                kernel_ext::task::cond_resched();
            }
            theirs.1.fetch_add(1, Full);
        })?;
        wait_for(&begun, 1);
        drop(thread);
        assert_eq!(ended.load(Acquire), 1);
        Ok(())
    }

    #[test]
    fn a_thread_may_end_by_itself() -> Result {
        let ended = counter()?;
        let theirs = ended.clone();
        let thread = Kthread::spawn(c"kunit", move |_| {
            theirs.fetch_add(1, Full);
        })?;
        wait_for(&ended, 1);
        thread.stop();
        assert_eq!(ended.load(Acquire), 1);
        Ok(())
    }

    #[test]
    fn a_body_runs_at_most_once_and_is_dropped_once() -> Result {
        const ROUNDS: u32 = 100;

        let (ran, dropped) = (counter()?, counter()?);
        for round in 0..ROUNDS {
            let theirs = ran.clone();
            let held = count_drop(&dropped);
            let thread = Kthread::spawn(c"kunit", move |_| {
                let _held = held;
                theirs.fetch_add(1, Full);
            })?;
            // It is stopped before its first turn, in the middle of it, or after.
            for _ in 0..round {
                core::hint::spin_loop();
            }
            thread.stop();
            assert!(ran.load(Acquire) <= round + 1);
            assert_eq!(dropped.load(Acquire), round + 1);
        }
        Ok(())
    }

    #[test]
    fn stop_is_seen_without_sleep() -> Result {
        let queue = Arc::pin_init(new_waitqueue!("kunit"), GFP_KERNEL)?;
        let theirs: Arc<WaitQueue> = queue.clone();
        let thread = Kthread::spawn(c"kunit", move |current| {
            theirs.wait(|| current.should_stop());
            assert!(current.should_stop());
        })?;
        thread.stop();
        assert!(!queue.has_sleeper());
        Ok(())
    }
}
