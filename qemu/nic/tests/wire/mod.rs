// SPDX-License-Identifier: GPL-2.0

//! The switch, with processes of its own: their guests, the peers at the guests' network devices,
//! and links.

mod capture;
mod link;
mod multicast;
mod program;
mod streams;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferrule_nic::device::Device;
use ferrule_nic::frame::Mac;
use ferrule_nic::interface::AddressVector;
use ferrule_nic::switch::address::Address;
use ferrule_nic::switch::endpoint::Endpoint;
use ferrule_nic::switch::forward::Switch;
use ferrule_nic::switch::poll::Poll;
use ferrule_nic::wire::Wire;
use ferrule_nic::worker::Worker;

use crate::driver::queues::vector;
use crate::driver::{eventually, Guest};

/// A directory for sockets, which goes with it.
pub struct Sockets(PathBuf);

impl Sockets {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ferrule-nic-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn address(&self, name: &str) -> Address {
        Address::Path(self.path(name))
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The Ethernet address of a guest that has this number among all processes.
pub fn mac(guest: u8) -> Mac {
    [2, 0, 0, 0, 1, guest]
}

/// Its address.
pub fn gid(guest: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    (gid[0], gid[15]) = (0xfd, guest);
    gid
}

/// Its address of IPv4.
pub fn gid4(guest: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, guest]
}

/// An address vector to it.
pub fn to(guest: u8, gid: [u8; 16]) -> AddressVector {
    AddressVector {
        dmac: mac(guest),
        ..vector(gid)
    }
}

/// The peer at a port of a switch.
pub enum At {
    /// The function of a guest that has this number, and its network device.
    Guest(u8, Option<Address>),
    /// Links.
    Listen(Address),
    Connect(Address),
}

/// A process with its guests.
pub struct Process {
    pub guests: Vec<Guest>,
    pub wire: Arc<Wire>,
    _poll: Poll,
    _worker: Worker,
}

/// A process whose switch has these ports: first those of guests.
pub fn process(ports: &[At]) -> Process {
    let mut switch = Switch::default();
    let mut endpoints = Vec::new();
    let mut numbers = Vec::new();
    for at in ports {
        match at {
            At::Guest(number, net) => {
                numbers.push(*number);
                let port = switch.add(Some(mac(*number)), net.is_some());
                endpoints.extend(net.iter().map(|net| Endpoint::listen(port, net).unwrap()));
            }
            At::Listen(address) => {
                let port = switch.add(None, true);
                endpoints.push(Endpoint::listen(port, address).unwrap());
            }
            At::Connect(address) => {
                let port = switch.add(None, true);
                endpoints.push(Endpoint::connect(port, address, Instant::now()));
            }
        }
    }
    let wire = Arc::new(Wire::new(switch).unwrap());
    let device = Device::with_wire(numbers.len(), Some(Arc::clone(&wire))).unwrap();
    let worker = Worker::new(&device).unwrap();
    let arrived = Arc::clone(&device);
    let poll = Poll::new(&wire, endpoints, move || arrived.packets_have_come()).unwrap();
    let guests = numbers.iter().enumerate().map(|(port, number)| {
        let mut guest = Guest::new(&device, port);
        guest.gid = gid(*number);
        guest
    });
    Process {
        guests: guests.collect(),
        wire,
        _poll: poll,
        _worker: worker,
    }
}

/// The same, whose queue pairs reach each other by packets alone.
pub fn wire_only(ports: &[At]) -> Process {
    let process = process(ports);
    process.wire.set_wire_only(true);
    process
}

/// Two processes with a link between them: guests 1 and 2 in one, 3 and 4 in the other.
pub fn linked(sockets: &Sockets) -> [Process; 2] {
    let link = sockets.address("link");
    let [near, far] = ["near", "far"].map(|name| Some(sockets.address(name)));
    let one = [
        At::Guest(1, None),
        At::Guest(2, near),
        At::Listen(link.clone()),
    ];
    let two = [At::Guest(3, None), At::Guest(4, far), At::Connect(link)];
    let processes = [process(&one), process(&two)];
    // From now on nothing is lost for want of a link.
    let [mut near, mut far] = ["near", "far"].map(|name| Peer::new(&sockets.path(name)));
    acquaint(&mut near, 2, &mut far);
    processes
}

/// Sends from the network device of a guest to another peer until a frame arrives: then there is a
/// way.
pub fn acquaint(from: &mut Peer, number: u8, to: &mut Peer) {
    let hello = frame([0xff; 6], mac(number), b"hello");
    let short = Some(Duration::from_millis(50));
    let long = to.0.read_timeout().unwrap();
    to.0.set_read_timeout(short).unwrap();
    eventually("a frame", || {
        from.send(&hello);
        (to.receive()? == hello).then_some(())
    });
    // Others may have come late.
    while to.receive().is_some() {}
    to.0.set_read_timeout(long).unwrap();
}

/// The peer of a stream: a guest's network device, or the end of a link.
pub struct Peer(pub UnixStream);

impl Peer {
    pub fn new(path: &Path) -> Self {
        let stream = eventually("a listener", || UnixStream::connect(path).ok());
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self(stream)
    }

    /// Sends a frame; returns whether there is still somebody.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        let length = (frame.len() as u32).to_be_bytes();
        self.0.write_all(&[&length[..], frame].concat()).is_ok()
    }

    /// The next frame; none if the stream has ended.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).ok()?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame).ok()?;
        Some(frame)
    }
}

/// A frame that is no packet of RoCEv2.
pub fn frame(to: Mac, from: Mac, rest: &[u8]) -> Vec<u8> {
    [&to[..], &from, &[0x88, 0xb5], rest].concat()
}
