// SPDX-License-Identifier: GPL-2.0

//! Ethernet frames of raw packet queue pairs: those of the network device that rules steer to them,
//! and sending.
//!
//! Rules are asked where the frames come by, before anything is copied, and only while there are
//! any: a device without rules sees no frame. Readers of the rules take no lock.
//!
//! A frame that a queue pair gets is a copy, and the stack of the machine gets the frame, too.
//! `CAP_NET_RAW` lets a program see what comes, as a packet socket does, but not take it away from
//! others: that is what `CAP_NET_ADMIN` and filters are for.

use ferrule_engine::steering::{
    fields::{
        Fields,
        HEADERS, //
    },
    rule::{
        Rule,
        RuleType, //
    },
    rule_table::{
        sort,
        steer,
        Entry,
        Origin,
        MAX_RULES, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        rcu,
        Arc,
        Mutex,
        UniqueArc, //
    },
};
use kernel_ext::rcu::RcuArc;
use net_ext::{
    account::Charged,
    frame::{
        Accept,
        Frame,
        Receive,
        Watch, //
    },
    skb::{
        Appender,
        NewSkBuff,
        OwnedSkBuff, //
    },
    Rtnl, //
};

use super::{
    device::Device,
    lower::Lower, //
};

/// The bytes of the headers that a frame may have beside what the MTU counts: those of Ethernet and
/// a VLAN tag, as `is_skb_forwardable()` of Linux has it.
const BESIDE_MTU: u32 = 14 + 4;

/// The frames of a network device.
#[pin_data]
pub(crate) struct Frames {
    lower: Arc<Lower>,
    device: Arc<dyn Device>,
    /// Sorted.
    rules: RcuArc<KVec<Entry>>,
    /// A caller that changes the rules holds this.
    #[pin]
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The name of the next rule.
    next: u32,
    /// The rules that there are.
    count: usize,
    /// Those of them that are for frames that leave, too.
    sniffers: usize,
    /// An empty list with space for the rules but one, so that a rule can always be taken away.
    spare: Option<UniqueArc<KVec<Entry>>>,
    /// There as long as there are rules.
    watch: Option<Pin<KBox<Watch<Frames>>>>,
}

impl State {
    /// Sees the frames that leave as long as somebody wants them.
    fn watch_leaving(&self) {
        if let Some(watch) = &self.watch {
            watch.watch_leaving(self.sniffers != 0);
        }
    }
}

/// A rule, which dropping this takes away. Process context.
pub(crate) struct Flow {
    frames: Arc<Frames>,
    id: u32,
    accept: Accept,
    is_sniffer: bool,
}

/// The frames that the network device has to receive for a rule. A normal one without the whole of
/// an address is for those that the device receives anyway.
fn accept(rule: &Rule) -> Accept {
    match rule.kind() {
        RuleType::Normal => rule.destination().map_or(Accept::Nothing, Accept::Address),
        RuleType::MulticastDefault => Accept::AllMulticast,
        RuleType::AllDefault | RuleType::Sniffer => Accept::All,
    }
}

impl Frames {
    /// Those of the network device `lower`, for the queue pairs of `device`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(lower: Arc<Lower>, device: Arc<dyn Device>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Frames {
                lower,
                device,
                rules: RcuArc::new(None),
                state <- new_mutex!(State::default(), "Frames::state"),
            }),
            GFP_KERNEL,
        )
    }

    /// Steers frames to a queue pair. Process context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also with as many rules as there can be; those of the network device that is to
    /// receive them, and `ENODEV` if that is lost.
    pub(crate) fn steer(self: &Arc<Self>, rule: Rule, qpn: u32) -> Result<Flow> {
        let mut state = self.state.lock();
        if state.count == MAX_RULES {
            return Err(ENOMEM);
        }
        let mut list = UniqueArc::new(
            KVec::with_capacity(state.count + 1, GFP_KERNEL_ACCOUNT)?,
            GFP_KERNEL_ACCOUNT,
        )?;
        // Without rules it finds none yet.
        let watch = match state.count {
            0 => Some(KBox::pin_init(
                Watch::new(self.lower.hold(), self.clone()),
                GFP_KERNEL,
            )?),
            _ => None,
        };
        let accept = accept(&rule);
        let rtnl = Rtnl::lock();
        if self.lower.is_lost(&rtnl) {
            return Err(ENODEV);
        }
        self.lower.accept(&rtnl, accept, true)?;
        drop(rtnl);
        // Nothing fails from here on.
        let flow = Flow {
            frames: self.clone(),
            id: state.next,
            accept,
            is_sniffer: rule.kind() == RuleType::Sniffer,
        };
        if watch.is_some() {
            state.watch = watch;
        }
        state.next = state.next.wrapping_add(1);
        state.count += 1;
        state.sniffers += usize::from(flow.is_sniffer);
        self.fill(&mut list, |_| true);
        let _ = list.push_within_capacity(Entry::new(flow.id, rule, qpn));
        sort(&mut list);
        state.spare = self.publish(Some(list));
        state.watch_leaving();
        Ok(flow)
    }

    /// Takes a rule away.
    fn remove(&self, flow: &Flow) {
        let mut state = self.state.lock();
        state.count -= 1;
        state.sniffers -= usize::from(flow.is_sniffer);
        state.watch_leaving();
        if state.count == 0 {
            state.watch = None;
            state.spare = None;
            drop(self.rules.replace(None));
        } else {
            // The list that was published before has space for as many as are left.
            let mut list = state.spare.take();
            if let Some(list) = &mut list {
                list.clear();
                self.fill(list, |entry| entry.id != flow.id);
                sort(list);
            }
            state.spare = self.publish(list);
        }
        drop(state);
        // A network device that is lost has forgotten the addresses, but not that it was to receive
        // all. One that refuses has gone.
        let rtnl = Rtnl::lock();
        if !(self.lower.is_lost(&rtnl) && matches!(flow.accept, Accept::Address(_))) {
            let _ = self.lower.accept(&rtnl, flow.accept, false);
        }
    }

    /// Copies the rules that there are, as far as there is space.
    fn fill(&self, list: &mut KVec<Entry>, keep: impl Fn(&Entry) -> bool) {
        let rcu = rcu::read_lock();
        for entry in self.rules.read(&rcu).into_iter().flatten() {
            if keep(entry) {
                let _ = list.push_within_capacity(*entry);
            }
        }
    }

    /// Puts a list in the place of the last one, and returns that for another use.
    fn publish(&self, list: Option<UniqueArc<KVec<Entry>>>) -> Option<UniqueArc<KVec<Entry>>> {
        let old = self.rules.replace(list.map(Arc::from))?;
        let mut old = Pin::into_inner(Arc::into_unique_or_drop(old)?);
        old.clear();
        Some(old)
    }

    /// The bytes of a frame that is sent, at most.
    pub(crate) fn limit(&self) -> u32 {
        self.lower.mtu().saturating_add(BESIDE_MTU)
    }

    /// Sends a frame of `length` bytes, which `fill` adds. Queue pairs of this device to which
    /// rules steer it get it, too, if it is to a group or to the port's own address, as an adapter
    /// hands such frames back to itself. It is charged to `charged` until it is gone. Any context;
    /// nothing waits.
    ///
    /// # Errors
    ///
    /// - `ENOBUFS` if the queue of the network device is full, `ENOMEM`: try again later.
    /// - `EINVAL` if `fill` adds fewer bytes.
    /// - Those of `fill`, and of [`net_ext::NetDevice::send_frame`].
    pub(crate) fn send<E: From<Error>>(
        &self,
        charged: &Charged,
        length: usize,
        fill: impl FnOnce(&mut Appender<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut packet = NewSkBuff::new(self.lower.headroom(), length)?;
        packet.append_with(length, fill)?;
        if packet.len() != length {
            return Err(EINVAL.into());
        }
        let frame = OwnedSkBuff::from(packet);
        self.loop_back(&frame);
        Ok(self.lower.send_frame(frame, charged)?)
    }

    /// Hands a frame of a queue pair to those of the same device that rules steer it to.
    fn loop_back(&self, frame: &OwnedSkBuff) {
        let rcu = rcu::read_lock();
        let Some(rules) = self.rules.read(&rcu) else {
            return;
        };
        let Some(fields) = Fields::parse(frame.linear(), None) else {
            return;
        };
        if !fields.is_multicast() && fields.ethernet.dst_mac != self.lower.address() {
            return;
        }
        for qpn in steer(rules, &fields, Origin::Own).qpns(rules) {
            if let Ok(copy) = frame.try_clone() {
                self.device.receive_frame(copy, qpn, true);
            }
        }
    }
}

impl Receive for Frames {
    fn receive(&self, frame: Frame<'_>) {
        let rcu = rcu::read_lock();
        let Some(rules) = self.rules.read(&rcu) else {
            return;
        };
        let mut head = [0; HEADERS];
        let Some(fields) = Fields::parse(frame.head(&mut head), frame.vlan_tag()) else {
            return;
        };
        let is_leaving = frame.is_leaving();
        let from = if is_leaving {
            Origin::Leaving
        } else {
            Origin::Wire
        };
        let targets = steer(rules, &fields, from);
        if targets.is_empty() {
            return;
        }
        for frame in frame.cut() {
            for qpn in targets.qpns(rules) {
                if let Ok(copy) = frame.try_clone() {
                    self.device.receive_frame(copy, qpn, is_leaving);
                }
            }
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.frames.remove(self);
    }
}
