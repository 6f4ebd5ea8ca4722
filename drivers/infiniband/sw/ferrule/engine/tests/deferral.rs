// SPDX-License-Identifier: GPL-2.0

//! Deferred kicks: when the engine defers those of a context, and how that ends. `tests/loom` has
//! the races.

use ferrule_engine::Status;

use crate::sim::*;

/// The time that kicks are deferred.
const DEFERRAL: u64 = 4 * MS;

/// How often the timer serves a program that never kicks, before its kicks are not deferred for a
/// while, and that while.
const MOST_LATE: u64 = 2;
const PAUSE: u64 = 100_000 * US;

/// A context whose engine sleeps, with a queue pair that is its own peer.
struct Scene {
    w: World,
    cq: TestCq,
    qp: TestQp,
    posted: u64,
}

impl Scene {
    fn new() -> Self {
        let mut w = World::new();
        let cq = w.cq(256);
        let qp = w.qp(&cq, &cq);
        w.connect(&qp, &qp);
        w.run();
        assert!(w.try_sleep());
        Self {
            w,
            cq,
            qp,
            posted: 0,
        }
    }

    fn has_backlog(&self, backlog: bool) {
        self.w.context.doorbells.0.backlog.set(backlog);
    }

    fn is_deferred(&self) -> bool {
        let memory = &self.w.context.doorbells.0;
        assert!(!(memory.deferred.get() && memory.sleeping.get()));
        memory.deferred.get()
    }

    /// Posts a request, and returns whether the program has to kick.
    fn post(&mut self) -> bool {
        self.qp.put_send(&Wr::write(self.posted, &[], (0, 0)));
        self.posted += 1;
        self.qp.ring()
    }

    fn kick(&mut self) {
        let context = self.w.context.id;
        self.w.engine.run(&mut self.w.host, PLENTY, Some(context));
    }

    /// The timer fires in so many nanoseconds.
    fn wait(&mut self, ns: u64) {
        self.w.host.now += ns;
        while self.w.engine.run(&mut self.w.host, PLENTY, None).more {}
    }

    /// The completions of all that was posted, in order.
    #[track_caller]
    fn expect(&self, wr_ids: std::ops::Range<u64>) {
        for wr_id in wr_ids {
            self.cq.expect(wr_id, Status::Success);
        }
        self.cq.expect_none();
    }
}

/// A program without a backlog kicks for each request.
#[test]
fn kicks_without_a_backlog_are_not_deferred() {
    let mut s = Scene::new();
    for wr_id in 0..100 {
        assert!(s.post());
        s.kick();
        assert!(!s.is_deferred());
        s.expect(wr_id..wr_id + 1);
    }
    assert_eq!(s.w.engine.deadline(), None);
}

/// A program with a backlog kicks once for many requests.
#[test]
fn kicks_of_a_backlog_are_deferred() {
    let mut s = Scene::new();
    s.has_backlog(true);
    assert!(s.post());
    s.kick();
    assert!(s.is_deferred());
    s.expect(0..1);
    for round in 0..10 {
        let first = 1 + 8 * round;
        for _ in 0..8 {
            assert!(!s.post(), "the kick is deferred");
        }
        s.expect(0..0);
        s.w.host.now += DEFERRAL - 1;
        s.kick();
        s.expect(first..first + 8);
        assert!(s.is_deferred());
    }
}

/// A program that neither polls nor kicks is served by the timer, and goes on as long as it rings.
#[test]
fn the_timer_serves_requests_whose_kick_was_deferred() {
    let mut s = Scene::new();
    s.has_backlog(true);
    s.post();
    s.kick();
    s.expect(0..1);
    for round in 1..10 {
        assert!(!s.post());
        assert_eq!(s.w.engine.deadline(), Some(s.w.host.now + DEFERRAL));
        s.wait(DEFERRAL - 1);
        // The run has found the doorbell before its timer fires.
        s.expect(round..round + 1);
        assert!(s.is_deferred());
    }
}

/// A program that polls no completions, and waits for its peer by looking at memory, does not wait
/// for the timer each time.
#[test]
fn kicks_of_a_program_that_does_not_poll_are_not_deferred() {
    let mut s = Scene::new();
    s.has_backlog(true);
    s.post();
    s.kick();
    for wr_id in 0..MOST_LATE {
        assert!(s.is_deferred());
        s.expect(wr_id..wr_id + 1);
        assert!(!s.post());
        s.wait(DEFERRAL);
    }
    s.expect(MOST_LATE..MOST_LATE + 1);
    let end = s.w.host.now + PAUSE;
    for wr_id in MOST_LATE + 1..100 {
        assert!(!s.is_deferred());
        assert_eq!(s.w.engine.deadline(), None);
        assert!(s.post());
        s.kick();
        s.expect(wr_id..wr_id + 1);
    }
    s.w.host.now = end - 1;
    s.post();
    s.kick();
    assert!(!s.is_deferred());
    s.w.host.now = end;
    s.post();
    s.kick();
    assert!(s.is_deferred());
}

/// A program is late only where the timer serves it. One that kicks in time is not, nor one whose
/// requests others find.
#[test]
fn kicks_stay_deferred_as_long_as_requests_do_not_wait_for_the_timer() {
    for kicks in [false, true] {
        let mut s = Scene::new();
        s.has_backlog(true);
        s.post();
        s.kick();
        s.expect(0..1);
        for round in 1..8 * MOST_LATE {
            assert!(s.is_deferred());
            assert!(!s.post());
            let is_in_time = round % MOST_LATE == 0;
            let ns = if is_in_time { DEFERRAL - 1 } else { DEFERRAL };
            if kicks && is_in_time {
                s.w.host.now += ns;
                s.kick();
            } else {
                s.wait(ns);
            }
            s.expect(round..round + 1);
        }
    }
}

/// A deferral ends when nothing was rung in its time. Then the program kicks as before.
#[test]
fn a_deferral_ends_when_nothing_is_rung() {
    let mut s = Scene::new();
    s.has_backlog(true);
    s.post();
    s.kick();
    s.wait(DEFERRAL - 1);
    assert!(s.is_deferred());
    s.wait(1);
    assert!(!s.is_deferred());
    assert_eq!(s.w.engine.deadline(), None);
    assert!(s.post());
    s.kick();
    s.expect(0..2);
}

/// A deferral ends when the backlog is gone, though the program rings on. Requests that it has rung
/// for by then are carried out.
#[test]
fn a_deferral_ends_with_the_backlog() {
    let mut s = Scene::new();
    s.has_backlog(true);
    s.post();
    s.kick();
    s.has_backlog(false);
    for _ in 0..3 {
        assert!(!s.post());
        s.wait(DEFERRAL / 4);
    }
    assert!(!s.post());
    s.wait(DEFERRAL / 4);
    assert!(!s.is_deferred());
    s.expect(0..5);
    assert!(s.post());
}

/// An engine that is awake defers nothing: it looks for itself.
#[test]
fn an_engine_that_is_awake_defers_nothing() {
    let mut s = Scene::new();
    s.has_backlog(true);
    s.w.engine.wake();
    s.post();
    s.kick();
    assert!(!s.is_deferred());
    assert!(!s.post());
    assert_eq!(s.w.engine.deadline(), None);
}

/// A deferral ends when an engine that was awake falls asleep, and with the context.
#[test]
fn a_deferral_ends_with_sleep_and_with_the_context() {
    let mut s = Scene::new();
    s.has_backlog(true);
    s.post();
    s.kick();
    assert!(s.is_deferred());
    s.w.engine.wake();
    assert!(s.w.try_sleep());
    assert!(!s.is_deferred());
    assert_eq!(s.w.engine.deadline(), None);
    let other = s.w.context();
    other.doorbells.0.backlog.set(true);
    let cq = s.w.cq(16);
    let qp = s.w.qp_in(Some(&other), &QpSpec::default(), &cq, &cq);
    s.w.connect(&qp, &qp);
    qp.put_send(&Wr::write(1, &[], (0, 0)));
    assert!(qp.ring());
    s.w.engine.run(&mut s.w.host, PLENTY, Some(other.id));
    assert!(other.doorbells.0.deferred.get());
    assert!(s.w.engine.remove_qp(qp.id.number).is_ok());
    assert!(s.w.engine.remove_context(other.id).is_ok());
    assert_eq!(s.w.engine.deadline(), None);
}
