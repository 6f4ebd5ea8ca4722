// SPDX-License-Identifier: GPL-2.0

//! `kernel_ext::sync`.

use kernel::prelude::*;

#[kunit_tests(kernel_ext_sync)]
mod tests {
    use kernel::sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    };
    use kernel_ext::{
        new_spinlock_irq, new_waitqueue,
        sync::{
            smp_mb,
            SpinLockIrq,
            WaitQueue, //
        },
        task::Kthread,
        time::{
            monotonic_ns,
            TimerCallback,
            WithTimer, //
        },
    };

    use super::*;

    #[test]
    fn spinlock_is_exclusive() -> Result {
        let lock = KBox::pin_init(new_spinlock_irq!(1u32, "kunit"), GFP_KERNEL)?;
        lock.with(|value| {
            *value += 1;
            assert!(lock.try_with(|_| ()).is_none());
        });
        assert_eq!(lock.try_with(|value| *value), Some(2));
        Ok(())
    }

    #[test]
    fn spinlock_protects_from_other_threads() -> Result {
        const ROUNDS: u32 = 2000;

        fn count(lock: &SpinLockIrq<u32>) {
            for _ in 0..ROUNDS {
                lock.with(|value| {
                    let seen = *value;
                    core::hint::spin_loop();
                    *value = seen + 1;
                });
            }
        }

        let lock = Arc::pin_init(new_spinlock_irq!(0u32, "kunit"), GFP_KERNEL)?;
        let theirs = lock.clone();
        let begun = Arc::new(Atomic::new(0u32), GFP_KERNEL)?;
        let their_begin = begun.clone();
        let thread = Kthread::spawn(c"kunit", move |_| {
            their_begin.store(1, Relaxed);
            count(&theirs);
        })?;
        while begun.load(Relaxed) == 0 {
            kernel_ext::task::cond_resched();
        }
        count(&lock);
        thread.stop();
        assert_eq!(lock.with(|value| *value), 2 * ROUNDS);
        Ok(())
    }

    /// Counts how often its time has come.
    struct Count(Atomic<u32>);

    impl TimerCallback for Count {
        fn expired(this: &WithTimer<Self>) {
            this.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn spinlock_keeps_interrupts_off() -> Result {
        const LATE: u64 = 20_000_000;

        let lock = KBox::pin_init(new_spinlock_irq!(0u32, "kunit"), GFP_KERNEL)?;
        let timer = Arc::pin_init(WithTimer::new(Count(Atomic::new(0))), GFP_KERNEL)?;
        let inner = KBox::pin_init(new_spinlock_irq!(0u32, "kunit inner"), GFP_KERNEL)?;
        let (begin, fired) = lock.with(|_| {
            // One that was taken and released meanwhile has left them off.
            inner.with(|_| ());
            // The timer is this processor's, which hears of it by an interrupt.
            let begin = monotonic_ns();
            timer.arm_at(begin);
            while monotonic_ns() < begin + LATE {
                core::hint::spin_loop();
            }
            (begin, timer.0.load(Relaxed))
        });
        // With PREEMPT_RT the lock leaves them on.
        assert!(cfg!(CONFIG_PREEMPT_RT) || fired == 0);
        while timer.0.load(Relaxed) == 0 {
            assert!(monotonic_ns() < begin + 10_000_000_000);
        }
        Ok(())
    }

    /// State by which two threads tell each other.
    #[pin_data]
    struct Shared {
        #[pin]
        queue: WaitQueue,
        said: Atomic<u32>,
        heard: Atomic<u32>,
    }

    impl Shared {
        fn make() -> Result<Arc<Self>> {
            Arc::pin_init(
                pin_init!(Shared {
                    queue <- new_waitqueue!("kunit"),
                    said: Atomic::new(0),
                    heard: Atomic::new(0),
                }),
                GFP_KERNEL,
            )
        }
    }

    #[test]
    fn nobody_waits_for_what_is_so() -> Result {
        let shared = Shared::make()?;
        shared.queue.wait(|| true);
        shared.queue.wait_idle(|| true);
        assert!(!shared.queue.has_sleeper());
        shared.queue.wake_up();
        Ok(())
    }

    #[test]
    fn a_waiting_thread_is_woken() -> Result {
        let shared = Shared::make()?;
        let theirs = shared.clone();
        let thread = Kthread::spawn(c"kunit", move |_| {
            theirs.queue.wait(|| theirs.said.load(Relaxed) == 1);
            theirs.heard.store(1, Relaxed);
        })?;
        while !shared.queue.has_sleeper() {
            kernel_ext::task::cond_resched();
        }
        // A waking without a reason is none.
        shared.queue.wake_up();
        assert_eq!(shared.heard.load(Relaxed), 0);
        shared.said.store(1, Relaxed);
        smp_mb();
        shared.queue.wake_up();
        thread.stop();
        assert_eq!(shared.heard.load(Relaxed), 1);
        assert!(!shared.queue.has_sleeper());
        Ok(())
    }

    #[test]
    fn no_waking_is_lost() -> Result {
        const ROUNDS: u32 = 500;

        let shared = Shared::make()?;
        let theirs = shared.clone();
        let thread = Kthread::spawn(c"kunit", move |_| {
            for round in 1..=ROUNDS {
                theirs
                    .queue
                    .wait_idle(|| theirs.said.load(Relaxed) >= round);
                theirs.heard.store(round, Relaxed);
                smp_mb();
                theirs.queue.wake_up();
            }
        })?;
        for round in 1..=ROUNDS {
            shared.said.store(round, Relaxed);
            if shared.queue.has_sleeper() {
                shared.queue.wake_up();
            }
            shared.queue.wait(|| shared.heard.load(Relaxed) == round);
        }
        thread.stop();
        Ok(())
    }
}
