// SPDX-License-Identifier: GPL-2.0

//! The engine's thread: it does what the guests' threads leave, serves programs that ring without a
//! kick, and fires timers.
//!
//! After work it looks for more for a short while, in which a program that rings need not kick. The
//! while is shorter if others want its processor (`patience.rs`). Then it tells all contexts to
//! kick, and sleeps until somebody wakes it or a timer is due.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ferrule_engine::{Engine, Sleep};
use parking_lot::MutexGuard;

use crate::device::{Device, State, SLICE};
use crate::host::{now, Nic};
use crate::packet::rx_packet;

/// How long the thread looks for work without finding any, in nanoseconds.
const SPIN: u64 = 100_000;

/// Packets that are taken before the queue pairs have their turns.
const PACKETS: usize = 64;

/// The looks without work after which the thread reads the clock, and lets others run that want its
/// processor.
const TURNS: u32 = 32;

/// How long events that find no space in their queue wait for the next try: at first, and at most,
/// in nanoseconds.
const RETRY: u64 = 1_000_000;
/// See [`RETRY`].
const RETRY_MOST: u64 = 128_000_000;

/// The engine's thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Worker {
    device: Arc<Device>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn new(device: &Arc<Device>) -> io::Result<Self> {
        let own = Arc::clone(device);
        let thread = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || work(&own))?;
        Ok(Self {
            device: Arc::clone(device),
            thread: Some(thread),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.device.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(device: &Device) {
    let mut state = device.lock();
    let mut retry = RETRY;
    while !state.ends {
        spin(&mut state);
        // Nothing is left to do before a timer fires or somebody asks.
        let waiting = state.host.flush();
        state.host.signal();
        if state.wanted || state.ends || state.engine.has_work() || state.host.has_packets() {
            continue;
        }
        let mut until = state.engine.deadline();
        state.retries = waiting;
        if waiting {
            let next = now().saturating_add(retry);
            until = Some(until.map_or(next, |until| until.min(next)));
            retry = retry.saturating_mul(2).min(RETRY_MOST);
        } else {
            retry = RETRY;
        }
        park(device, &mut state, until);
    }
}

/// Sleeps until somebody asks for the thread, or the time has come.
fn park(device: &Device, state: &mut MutexGuard<'_, State>, until: Option<u64>) {
    state.parked = Some(until);
    match until {
        None => device.wake.wait(state),
        Some(until) => {
            let wait = Duration::from_nanos(until.saturating_sub(now()));
            let _ = device.wake.wait_for(state, wait);
        }
    }
    state.parked = None;
}

/// Runs the engine until nothing is left; and if programs were told that they need not kick, until
/// they pause.
fn spin(state: &mut MutexGuard<'_, State>) {
    let mut idle = 0u32;
    let mut since = 0;
    let mut awake = false;
    loop {
        if std::mem::take(&mut state.wanted) {
            state.engine.wake();
            awake = true;
            idle = 0;
        }
        let State {
            engine,
            host,
            patience,
            ..
        } = &mut **state;
        let received = receive(engine, host);
        let outcome = engine.run(host, SLICE, None);
        patience.done(outcome.done, outcome.used.bytes);
        host.flush();
        host.signal();
        let busy = received || outcome.more || outcome.done != 0;
        if busy {
            idle = 0;
        } else if idle == 0 {
            since = now();
        }
        if state.ends || (!busy && !awake) {
            return;
        }
        if !busy {
            idle = idle.saturating_add(1);
        }
        let rest = idle != 0 && idle % TURNS == 0;
        if !rest {
            MutexGuard::bump(state);
            std::hint::spin_loop();
            continue;
        }
        let before = now();
        if before.saturating_sub(since) > SPIN && fall_asleep(state) {
            return;
        }
        MutexGuard::unlocked(state, std::thread::yield_now);
        if state.patience.rested(before, now()) && fall_asleep(state) {
            return;
        }
    }
}

/// Hands packets that have come to the engine, and returns whether there were some.
fn receive(engine: &mut Engine<Nic>, host: &mut Nic) -> bool {
    let packets = host.wire.as_ref().map(|wire| wire.packets(PACKETS));
    let mut some = false;
    for packet in packets.into_iter().flatten() {
        some = true;
        if let Some(rx) = rx_packet(&packet) {
            engine.receive(host, &rx);
        }
    }
    some
}

/// Tells all contexts to kick, unless one has rung by then; returns whether that is so.
fn fall_asleep(state: &mut MutexGuard<'_, State>) -> bool {
    loop {
        match state.engine.try_sleep(SLICE.looks()) {
            Sleep::Asleep => return true,
            Sleep::Awake => return false,
            Sleep::Step => MutexGuard::bump(state),
        }
    }
}
