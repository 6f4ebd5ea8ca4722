// SPDX-License-Identifier: GPL-2.0

//! `kernel_ext::time`.

use kernel::prelude::*;

#[kunit_tests(kernel_ext_time)]
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
    use kernel_ext::{
        task::cond_resched,
        time::{
            monotonic_ns,
            monotonic_raw_ns,
            TimerCallback,
            WithTimer, //
        },
    };

    use super::*;

    const MS: u64 = 1_000_000;
    /// Longer than anything here takes, however busy the host is.
    const PATIENCE: u64 = 10_000 * MS;

    /// Tells how often and when last its time has come, and arms itself anew a few times. Tells how
    /// often it was called.
    struct Alarm {
        fired: Atomic<u32>,
        called: Atomic<u32>,
        at: Atomic<u64>,
        again: Atomic<u32>,
    }

    impl TimerCallback for Alarm {
        fn expired(this: &WithTimer<Self>) {
            this.at.store(monotonic_ns(), Release);
            let again = this.again.load(Acquire);
            if again > 0 {
                this.again.store(again - 1, Release);
                this.arm_at(monotonic_ns() + MS);
            }
            this.fired.fetch_add(1, Full);
        }

        fn called(this: &WithTimer<Self>) {
            let again = this.again.load(Acquire);
            if again > 0 {
                this.again.store(again - 1, Release);
                assert!(this.call());
            }
            this.called.fetch_add(1, Full);
        }
    }

    fn alarm(again: u32) -> Result<Arc<WithTimer<Alarm>>> {
        Arc::pin_init(
            WithTimer::new(Alarm {
                fired: Atomic::new(0),
                called: Atomic::new(0),
                at: Atomic::new(0),
                again: Atomic::new(again),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether it has fired so often before patience is lost.
    fn fires(alarm: &WithTimer<Alarm>, times: u32) -> bool {
        let end = monotonic_ns() + PATIENCE;
        while alarm.fired.load(Acquire) < times && monotonic_ns() < end {
            cond_resched();
        }
        alarm.fired.load(Acquire) == times
    }

    fn sleep_until(ns: u64) {
        while monotonic_ns() < ns {
            cond_resched();
        }
    }

    #[test]
    fn clocks_go_forward() {
        let (mut now, mut raw) = (monotonic_ns(), monotonic_raw_ns());
        for _ in 0..1000 {
            let (next, next_raw) = (monotonic_ns(), monotonic_raw_ns());
            assert!(next >= now && next_raw >= raw);
            (now, raw) = (next, next_raw);
        }
    }

    #[test]
    fn fires_once_and_not_early() -> Result {
        let alarm = alarm(0)?;
        let due = monotonic_ns() + 5 * MS;
        alarm.arm_at(due);
        assert!(fires(&alarm, 1));
        assert!(alarm.at.load(Acquire) >= due);
        sleep_until(monotonic_ns() + 10 * MS);
        assert_eq!(alarm.fired.load(Acquire), 1);
        Ok(())
    }

    #[test]
    fn a_time_that_was_is_now() -> Result {
        let alarm = alarm(0)?;
        alarm.arm_at(1);
        assert!(fires(&alarm, 1));
        Ok(())
    }

    #[test]
    fn arming_again_moves_it() -> Result {
        let alarm = alarm(0)?;
        let begin = monotonic_ns();
        alarm.arm_at(begin + PATIENCE);
        let due = begin + 20 * MS;
        alarm.arm_at(due);
        assert!(fires(&alarm, 1));
        assert!(alarm.at.load(Acquire) >= due);
        assert!(alarm.at.load(Acquire) < begin + PATIENCE);
        Ok(())
    }

    #[test]
    fn its_function_may_arm_it() -> Result {
        let alarm = alarm(3)?;
        alarm.arm_at(monotonic_ns());
        assert!(fires(&alarm, 4));
        Ok(())
    }

    #[test]
    fn cancelled_it_does_not_fire() -> Result {
        let alarm = alarm(0)?;
        let due = monotonic_ns() + 50 * MS;
        alarm.arm_at(due);
        alarm.cancel();
        let in_time = monotonic_ns() < due;
        sleep_until(due + 20 * MS);
        // A busy host may be late by all that; then there was nothing to cancel.
        assert!(!in_time || alarm.fired.load(Acquire) == 0);
        let fired = alarm.fired.load(Acquire);
        alarm.arm_at(monotonic_ns());
        assert!(fires(&alarm, fired + 1));
        Ok(())
    }

    #[test]
    fn never_is_far() -> Result {
        let alarm = alarm(0)?;
        alarm.arm_at(u64::MAX);
        sleep_until(monotonic_ns() + 5 * MS);
        assert_eq!(alarm.fired.load(Acquire), 0);
        Ok(())
    }

    #[test]
    fn a_call_has_been_when_it_returns() -> Result {
        let alarm = alarm(0)?;
        for calls in 1..=100 {
            assert!(alarm.call());
            assert_eq!(alarm.called.load(Acquire), calls);
        }
        assert_eq!(alarm.fired.load(Acquire), 0);
        Ok(())
    }

    #[test]
    fn one_that_is_called_may_ask_for_the_next() -> Result {
        let alarm = alarm(3)?;
        assert!(alarm.call());
        let end = monotonic_ns() + PATIENCE;
        while alarm.called.load(Acquire) < 4 && monotonic_ns() < end {
            cond_resched();
        }
        assert_eq!(alarm.called.load(Acquire), 4);
        Ok(())
    }

    #[test]
    fn dropping_disarms() -> Result {
        for _ in 0..50 {
            let alarm = alarm(1_000_000)?;
            alarm.arm_at(monotonic_ns());
        }
        Ok(())
    }
}
