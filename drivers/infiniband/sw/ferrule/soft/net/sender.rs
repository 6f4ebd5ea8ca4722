// SPDX-License-Identifier: GPL-2.0

//! How much a queue pair may have on its way to the network.
//!
//! Packets lie in the queue of the network device until it has sent them: for ever, if the device
//! stands still. They take memory of the kernel, so there are limits. A queue pair that has reached
//! its limit waits until packets of its own are gone. Each queue pair has an account
//! ([`net_ext::account`]), so none waits for packets of another device. The queue pairs of one
//! device share a limit, but a queue pair with few packets on their way may go beyond it.
//!
//! Responses go beyond the limit of requests, to twice as much: a queue pair whose requests wait
//! can still acknowledge those of its peer, which may be all that the peer waits for.
//!
//! The account of a queue pair goes with it. Its last packets then count for no queue pair, as
//! those of a closed socket do: the queue of the network device limits them.

use ferrule_engine::Sends;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    }, //
};
use net_ext::{
    account::{
        Account,
        Charged,
        Gone, //
    },
    Flow, //
};

use super::{
    device::Device,
    frames::Frames,
    ports::Ports, //
};

/// How many bytes of packets a queue pair may have on its way, in requests: some milliseconds of a
/// fast link, and as much as its window has space for.
const QUEUE_PAIR: usize = 1 << 20;

/// And all queue pairs of a device together: less than the queue of a network device has space for.
const DEVICE: usize = 4 << 20;

/// A queue pair with less than this is not held up by the others of its device: about as much as a
/// socket of a program may have on its way (`net.core.wmem_default`).
const LITTLE: usize = 256 << 10;

/// The limit that the queue pairs of a device share.
pub(crate) struct Limit {
    /// The memory of their packets that are on their way.
    queued: Atomic<usize>,
    device: Arc<dyn Device>,
}

impl Limit {
    /// That of a device, which is told when queue pairs have space again.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: Arc<dyn Device>) -> Result<Arc<Self>> {
        let limit = Limit {
            queued: Atomic::new(0),
            device,
        };
        Ok(Arc::new(limit, GFP_KERNEL)?)
    }
}

/// The account of a queue pair. It is dropped with that, in process context.
pub(crate) struct Sender {
    account: Pin<KBox<Account<Share>>>,
    share: Arc<Share>,
}

/// The account of a queue pair for packets that leave later, when the queue pair may be gone.
pub(super) struct Charge {
    charged: ARef<Charged>,
    share: Arc<Share>,
}

/// The share of a queue pair in its device's limit.
struct Share {
    limit: Arc<Limit>,
    qpn: u32,
    /// How much of [`Limit::queued`] is this queue pair's.
    counted: Atomic<usize>,
    /// Not 0: it waits for space.
    waits: Atomic<u32>,
    /// Its packets, in their order.
    flow: Flow,
    /// The network device's frames, for a raw packet queue pair. They are here and not in the
    /// account, for which the frame that a queue pair is made in has no space.
    frames: Option<Arc<Frames>>,
}

impl Sender {
    /// The account of the queue pair `qpn`, which sends frames if there are any. Process context.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the network namespace has come to its end, `ENOMEM`.
    pub(crate) fn new(
        ports: &Ports,
        limit: Arc<Limit>,
        qpn: u32,
        frames: Option<Arc<Frames>>,
    ) -> Result<Self> {
        let share = Share {
            limit,
            qpn,
            counted: Atomic::new(0),
            waits: Atomic::new(0),
            flow: Flow::new(),
            frames,
        };
        let share = Arc::new(share, GFP_KERNEL_ACCOUNT)?;
        let account = Account::new(ports.lease()?, share.clone());
        Ok(Sender {
            account: KBox::pin_init(account, GFP_KERNEL_ACCOUNT)?,
            share,
        })
    }

    /// Whether one more packet may be sent. If not, the device is told as soon as there is space.
    /// For the owner of the shard.
    #[inline]
    pub(crate) fn has_write_space(&self, kind: Sends) -> bool {
        if self.share.has_write_space(&self.account, kind) {
            return true;
        }
        // Either the callback for a packet that is gone sees this, or the check below sees that the
        // packet is gone.
        self.share.waits.xchg(1, Full);
        self.share.has_write_space(&self.account, kind)
    }

    /// Whether packets that leave from here keep the order. For the owner of the shard, in a batch.
    #[inline]
    pub(crate) fn keeps_order(&self) -> bool {
        self.share.flow.may_send()
    }

    /// The network device's frames, of a raw packet queue pair.
    pub(crate) fn frames(&self) -> Option<&Arc<Frames>> {
        self.share.frames.as_ref()
    }

    /// The socket that its packets are charged to.
    #[inline]
    pub(crate) fn charged(&self) -> &Charged {
        &self.account
    }

    /// Packets of it have been handed to the network. For the owner of the shard, in a batch.
    #[inline]
    pub(crate) fn sent(&self) {
        self.share.flow.sent();
        self.share.settle(&self.account);
    }

    /// The same for packets that leave later.
    #[inline]
    pub(super) fn for_later(&self) -> Charge {
        Charge {
            charged: self.account.hold(),
            share: self.share.clone(),
        }
    }
}

impl Charge {
    /// The socket that the packets are charged to.
    #[inline]
    pub(super) fn charged(&self) -> &Charged {
        &self.charged
    }

    /// The packets have been handed to the network. As [`Sender::sent`].
    #[inline]
    pub(super) fn sent(&self) {
        self.share.flow.sent();
        self.share.settle(&self.charged);
    }

    /// Whether it is of this queue pair.
    #[inline]
    pub(super) fn is_of(&self, sender: &Sender) -> bool {
        Arc::ptr_eq(&self.share, &sender.share)
    }
}

impl Share {
    #[inline]
    fn has_write_space(&self, charged: &Charged, kind: Sends) -> bool {
        let times = match kind {
            Sends::Requests => 1,
            Sends::Responses => 2,
        };
        let queued = charged.queued();
        queued < LITTLE
            || queued < times * QUEUE_PAIR && self.limit.queued.load(Relaxed) < times * DEVICE
    }

    /// Whether enough of the write space is free again to wake the queue pair, as `sock_writeable`
    /// of Linux judges it for a socket: a callback for every packet would cost more than it brings.
    #[inline]
    fn is_writeable(&self, queued: usize) -> bool {
        queued < LITTLE / 2
            || queued < QUEUE_PAIR / 2 && self.limit.queued.load(Relaxed) < DEVICE / 4 * 3
    }

    /// Counts the change since the last time for the device. Any number of callers may do so at
    /// once: the last one that has written has compared once more after that.
    #[inline]
    fn settle(&self, charged: &Charged) -> usize {
        let mut now = charged.queued();
        while self.counted.load(Relaxed) != now {
            let before = self.counted.xchg(now, Full);
            self.limit
                .queued
                .fetch_add(now.wrapping_sub(before), Relaxed);
            now = charged.queued();
        }
        now
    }
}

impl Gone for Share {
    #[inline]
    fn gone(&self, charged: &Charged) {
        let queued = self.settle(charged);
        if self.waits.load(Relaxed) != 0
            && self.is_writeable(queued)
            && self.waits.xchg(0, Full) != 0
        {
            self.limit.device.write_space(self.qpn);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let counted = self.counted.load(Relaxed);
        self.limit.queued.fetch_sub(counted, Relaxed);
    }
}
