// SPDX-License-Identifier: GPL-2.0

//! The port and its answers.
//!
//! The first byte of a packet says what is asked:
//!
//! | byte | then | answer |
//! |---|---|---|
//! | `e` | anything | the packet |
//! | `b` | a count | the packet, that many times, as a batch |
//! | `g` | a count, a `u16`: a length | the packet, that many times, as lists; the second byte is the number of each, and the last one has that length |
//! | `l` | `u16`, a length | a packet of that many zeroes behind the question's five first bytes |
//! | `i` | anything | what is known of the packet, its sender and the machine ([`Echo::tell`]) |
//!
//! An answer has the traffic class and the flow label of its question, the hop limit 77, and the
//! priority that stands in the upper three bits of the traffic class. Numbers are big-endian.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
};
use kernel_ext::error::code::EAFNOSUPPORT;
use net_ext::{
    ip::{
        UdpHeaders,
        MAX_LEN, //
    },
    notifier::{
        AddressEvent,
        AddressNotice,
        DeviceEvent,
        DeviceNotice,
        Devices,
        Ipv4Addresses,
        Ipv6Addresses,
        Watch, //
    },
    pernet::{
        Lease,
        PerNet, //
    },
    route::Route,
    skb::{
        Checksum,
        NewSkBuff,
        PacketList, //
    },
    udp::{
        Family,
        Packet,
        Port,
        Receive,
        UdpSocket, //
    },
    Batch, //
};

/// The port in each namespace.
const PORT: u16 = 4799;

const HOP_LIMIT: u8 = 77;

/// The events since the module was loaded.
static UP: Atomic<u32> = Atomic::new(0);
static UNREGISTERED: Atomic<u32> = Atomic::new(0);
static ADDED: Atomic<u32> = Atomic::new(0);
static REMOVED: Atomic<u32> = Atomic::new(0);
/// Questions that got no answer, and the error of the last of them.
static UNANSWERED: Atomic<u32> = Atomic::new(0);
static LAST_ERROR: Atomic<i32> = Atomic::new(0);
/// Routes that were looked for.
static ROUTES: Atomic<u32> = Atomic::new(0);

/// Counts what the notifiers tell.
pub(super) struct Count;

impl Watch<Devices> for Count {
    fn notify(&self, notice: DeviceNotice<'_>) {
        match notice.event {
            DeviceEvent::Up => UP.fetch_add(1, Relaxed),
            DeviceEvent::Unregister => UNREGISTERED.fetch_add(1, Relaxed),
            _ => 0,
        };
    }
}

fn count_address(notice: AddressNotice<'_>) {
    match notice.event {
        AddressEvent::Added => ADDED.fetch_add(1, Relaxed),
        AddressEvent::Removed => REMOVED.fetch_add(1, Relaxed),
    };
}

impl Watch<Ipv4Addresses> for Count {
    fn notify(&self, notice: AddressNotice<'_>) {
        count_address(notice);
    }
}

impl Watch<Ipv6Addresses> for Count {
    fn notify(&self, notice: AddressNotice<'_>) {
        count_address(notice);
    }
}

/// The sockets of a namespace.
pub(super) struct Ports {
    _v4: UdpSocket<Echo>,
    _v6: Option<UdpSocket<Echo>>,
}

net_ext::pernet_id!(Ports);

impl PerNet for Ports {
    fn new(lease: Lease) -> impl PinInit<Self, Error> {
        Self::open(&lease)
    }
}

impl Ports {
    fn open(net: &Lease) -> Result<Self> {
        let open = |family| UdpSocket::new(net.clone(), family, PORT, Echo::new(net)?);
        Ok(Ports {
            _v4: open(Family::V4)?,
            _v6: match open(Family::V6) {
                Err(error) if error == EAFNOSUPPORT => None,
                other => Some(other?),
            },
        })
    }
}

/// The route of the last answer, with the headers that it is for.
type Kept = Option<(UdpHeaders, Route)>;

/// The module's answering side.
#[pin_data]
pub(super) struct Echo {
    #[pin]
    kept: SpinLock<Kept>,
    net: Lease,
}

impl Echo {
    fn new(net: &Lease) -> Result<Arc<Self>> {
        let echo = pin_init!(Echo {
            kept <- new_spinlock!(None, "Echo::kept"),
            net: net.clone(),
        });
        Arc::pin_init(echo, GFP_KERNEL)
    }

    /// The way to where `headers` say, which is that of the last answer as a rule.
    fn route(&self, headers: &UdpHeaders) -> Result<Route> {
        let mut kept = self.kept.lock();
        if let Some((old, route)) = &*kept {
            if old == headers && route.is_current() {
                return Ok(route.clone());
            }
        }
        ROUTES.fetch_add(1, Relaxed);
        let route = Route::find(&self.net, headers, 0)?;
        *kept = Some((*headers, route.clone()));
        Ok(route)
    }

    fn answer(&self, port: &Port, packet: &mut Packet<'_>) -> Result {
        let mut question = [0; 5];
        let asked = packet.skb.len().min(question.len());
        packet.skb.copy_bits(0, &mut question[..asked])?;

        let asked = packet.headers;
        let headers = UdpHeaders {
            addresses: asked.addresses.reversed(),
            hop_limit: HOP_LIMIT,
            source_port: asked.destination_port,
            destination_port: asked.source_port,
            ..asked
        };
        let route = self.route(&headers)?;
        let priority = (asked.traffic_class >> 5).into();
        let make = |bytes: &[u8]| -> Result<NewSkBuff> {
            let headroom = route.headroom().max(PacketList::HEADROOM) + headers.len();
            let mut answer = NewSkBuff::new(headroom, bytes.len())?;
            answer.append(bytes)?;
            let mut front = [0; MAX_LEN];
            let front = &mut front[..headers.len()];
            headers.write(bytes.len(), front)?;
            answer.prepend(front)?;
            Ok(answer)
        };
        let send = |bytes: &[u8]| port.send(make(bytes)?, &route, priority, port.charged());
        let skb = &packet.skb;
        let zeroes = |len| KVec::from_elem(0, len, GFP_ATOMIC);
        let mut whole = zeroes(skb.len())?;
        skb.copy_bits(0, &mut whole)?;
        match question {
            [b'e', ..] => send(&whole),
            [b'b', count, ..] => {
                let _batch = Batch::new();
                (0..count).try_for_each(|_| send(&whole))
            }
            [b'g', count, high, low, ..] => {
                let last = usize::from(u16::from_be_bytes([high, low]));
                if last.min(skb.len()) < question.len() {
                    return Err(EINVAL);
                }
                let begin = |packet| PacketList::new(packet).map_err(|_| EINVAL);
                let mut list: Option<PacketList> = None;
                for number in 0..count {
                    let is_last = number + 1 == count;
                    let len = if is_last { last } else { skb.len() };
                    let mut bytes = KVec::from_elem(number, len, GFP_ATOMIC)?;
                    let same = len.min(whole.len());
                    bytes[..same].copy_from_slice(&whole[..same]);
                    bytes[1] = number;
                    let packet = make(&bytes)?;
                    let Some(mut begun) = list.take() else {
                        list = Some(begin(packet)?);
                        continue;
                    };
                    list = Some(match begun.push(packet) {
                        Ok(()) => begun,
                        Err(packet) => {
                            port.send_list(begun, &route, priority, port.charged())?;
                            begin(packet)?
                        }
                    });
                }
                list.map_or(Ok(()), |list| {
                    port.send_list(list, &route, priority, port.charged())
                })
            }
            [b'l', high, low, ..] => {
                let len = question.len() + usize::from(u16::from_be_bytes([high, low]));
                let mut bytes = zeroes(len)?;
                bytes[..question.len()].copy_from_slice(&question);
                send(&bytes)
            }
            [b'i', ..] => {
                let facts = Self::tell(packet, &route)?;
                send(&facts)
            }
            _ => Err(EINVAL),
        }
    }

    /// The answer: `u32 interface, vlan, traffic_class, hop_limit, flow_label, checksum, length,
    /// linear, crc, mtu, resolved; u8 mac[8]; u32 up, unregistered, added, removed, unanswered,
    /// last_error, routes, takes_lists`.
    ///
    /// No VLAN is 0xffffffff; `resolved` is 0 or an error.
    fn tell(packet: &mut Packet<'_>, route: &Route) -> Result<KVec<u8>> {
        let (skb, headers) = (&mut packet.skb, &packet.headers);
        let linear = skb.linear().len();
        let whole = skb.crc32(!0, 0, skb.len())?;
        // The same bytes in two other ways: by halves, and in one piece.
        let half = skb.len() / 2;
        let halves = skb.crc32(skb.crc32(!0, 0, half)?, half, skb.len() - half)?;
        skb.make_linear(skb.len())?;
        if halves != whole || skb.crc32(!0, 0, skb.len())? != whole {
            return Err(EIO);
        }
        // And bytes that were pulled can be had back.
        let len = skb.len();
        skb.unpull(8)?;
        skb.pull(8)?;
        if skb.len() != len || skb.unpull(1 << 16).is_ok() || skb.pull(len + 1).is_ok() {
            return Err(EIO);
        }
        let (resolved, mac) = match route.resolve(headers.addresses.source()) {
            Ok(mac) => (0, mac),
            Err(error) => (error.to_errno(), [0; 6]),
        };
        let vlan = packet.device.vlan();
        let below = vlan.as_ref().map(|vlan| &vlan.real_device);
        if below.is_some_and(|below| !below.has_upper(packet.device) || below.is_vlan()) {
            return Err(EIO);
        }
        let checksum = match skb.checksum() {
            Checksum::None => 0,
            Checksum::Unnecessary => 1,
            Checksum::Complete => 2,
            Checksum::Partial => 3,
        };
        let mut facts = KVec::new();
        let mut add = |bytes: [u8; 4]| facts.extend_from_slice(&bytes, GFP_ATOMIC);
        for number in [
            packet.device.ifindex(),
            vlan.map_or(!0, |vlan| vlan.id.into()),
            headers.traffic_class.into(),
            headers.hop_limit.into(),
            headers.flow_label,
            checksum,
            len as u32,
            linear as u32,
            !whole,
            route.mtu() as u32,
            resolved as u32,
        ] {
            add(number.to_be_bytes())?;
        }
        let [a, b, c, d, e, f] = mac;
        add([a, b, c, d])?;
        add([e, f, 0, 0])?;
        for number in [&UP, &UNREGISTERED, &ADDED, &REMOVED, &UNANSWERED] {
            add(number.load(Relaxed).to_be_bytes())?;
        }
        add(LAST_ERROR.load(Relaxed).to_be_bytes())?;
        add(ROUTES.load(Relaxed).to_be_bytes())?;
        add(u32::from(route.takes_lists()).to_be_bytes())?;
        Ok(facts)
    }
}

impl Receive for Echo {
    fn receive(&self, port: &Port, mut packet: Packet<'_>) {
        if let Err(error) = self.answer(port, &mut packet) {
            UNANSWERED.fetch_add(1, Relaxed);
            LAST_ERROR.store(error.to_errno(), Relaxed);
        }
    }
}
