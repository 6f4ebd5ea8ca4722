// SPDX-License-Identifier: GPL-2.0

//! Packets as the simulated host has them.

use ferrule_engine::packet::icrc::{crc32, icrc};
use ferrule_engine::{Fault, Outgoing, PacketBytes, Path, Region, RxPacket, Sink, Vport};

use super::host::Sim;
use super::memory::SimRegion;

/// A packet in the making, with space for so many bytes.
struct SimSink {
    bytes: Vec<u8>,
    capacity: usize,
}

impl SimSink {
    fn new(capacity: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(capacity),
            capacity,
        }
    }

    /// All bytes, of which there must be as many as there was space for.
    fn into_bytes(self) -> Vec<u8> {
        assert_eq!(self.bytes.len(), self.capacity);
        self.bytes
    }
}

impl Sink<SimRegion> for SimSink {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        assert!(bytes.len() <= self.capacity - self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn put_memory(&mut self, from: &SimRegion, offset: u64, length: usize) -> Result<(), Fault> {
        self.put(&from.read(offset, length)?)
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes of a frame, as the engine writes them.
pub(super) fn written_frame<'a>(frame: &mut impl Outgoing<'a, Sim>) -> Result<Vec<u8>, Fault> {
    let mut bytes = SimSink::new(frame.length());
    frame.write(&[], &[], &mut bytes)?;
    Ok(bytes.into_bytes())
}

/// A packet on the simulated network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    pub ip: Vec<u8>,
    pub udp: Vec<u8>,
    pub transport: Vec<u8>,
    pub icrc: [u8; 4],
    /// The identifier of its VLAN plus 1.
    pub vlan: u16,
}

impl SentPacket {
    /// Makes the headers that a host makes, and lets the engine write the rest.
    pub(super) fn new<'a>(path: &Path, packet: &mut impl Outgoing<'a, Sim>) -> Result<Self, Fault> {
        let length = packet.length() + 8;
        let ip = if path.sgid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] {
            ipv4(path, length as u16 + 20)
        } else {
            let class = path.traffic_class;
            let mut ip = vec![
                0x60 | class >> 4,
                class << 4,
                0,
                0,
                0,
                0,
                17,
                path.hop_limit,
            ];
            ip[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            ip.extend_from_slice(&path.sgid);
            ip.extend_from_slice(&path.dgid);
            ip
        };
        let mut udp = vec![0xc0, 0, 0x12, 0xb7];
        udp.extend_from_slice(&(length as u16).to_be_bytes());
        udp.extend_from_slice(&[0, 0]);
        let mut transport = SimSink::new(packet.length());
        packet.write(&ip, &udp, &mut transport)?;
        let mut transport = transport.into_bytes();
        let icrc = transport.split_off(transport.len() - 4);
        Ok(Self {
            ip,
            udp,
            transport,
            icrc: icrc.try_into().unwrap(),
            vlan: 0,
        })
    }

    /// One that is an Ethernet frame.
    pub fn of_frame(frame: &[u8]) -> Self {
        Self {
            ip: Vec::new(),
            udp: Vec::new(),
            transport: frame.to_vec(),
            icrc: [0; 4],
            vlan: 0,
        }
    }

    /// As a host hands it to the engine.
    pub fn rx_packet(&self) -> RxPacket<'_, Sim> {
        RxPacket {
            ip: &self.ip,
            udp: &self.udp,
            packet: self,
            icrc: self.icrc,
            sl: 0,
            vport: Vport::default(),
        }
    }

    /// Gives it the invariant CRC that it should have.
    pub fn seal(&mut self) {
        self.icrc = icrc(crc32, &self.ip, &self.udp, &self.transport).unwrap();
    }
}

/// An IPv4 header of a packet of `total` bytes, with its checksum.
fn ipv4(path: &Path, total: u16) -> Vec<u8> {
    let mut ip = vec![0x45, path.traffic_class];
    ip.extend_from_slice(&total.to_be_bytes());
    ip.extend_from_slice(&[0, 0, 0x40, 0, path.hop_limit, 17, 0, 0]);
    ip.extend_from_slice(&path.sgid[12..]);
    ip.extend_from_slice(&path.dgid[12..]);
    let sum: u32 = ip
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip
}

impl PacketBytes<SimRegion> for SentPacket {
    /// As a socket buffer has it: the headers and some payload in one piece.
    fn headers(&self) -> &[u8] {
        &self.transport[..self.transport.len().min(64)]
    }

    fn length(&self) -> usize {
        self.transport.len()
    }

    fn crc32(&self, crc: u32, offset: usize, length: usize) -> Result<u32, Fault> {
        let bytes = self
            .transport
            .get(offset..)
            .and_then(|rest| rest.get(..length));
        Ok(crc32(crc, bytes.ok_or(Fault)?))
    }

    fn copy(&self, offset: usize, to: &SimRegion, at: u64, length: usize) -> Result<(), Fault> {
        let bytes = self
            .transport
            .get(offset..)
            .and_then(|rest| rest.get(..length));
        Region::write(to, at, bytes.ok_or(Fault)?)
    }

    fn vlan(&self) -> u16 {
        self.vlan
    }
}
