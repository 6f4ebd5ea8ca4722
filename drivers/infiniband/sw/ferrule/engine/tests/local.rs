// SPDX-License-Identifier: GPL-2.0

//! The parts of a host whose queue pairs all have local peers, and steps that each host takes. The
//! models of loom and the bench of threads have the rest, and the simulated host has packets.

use ferrule_engine::{
    Access, Engine, Error, Fault, Host, Modify, Mtu, PacketBytes, Path, PathKind, Refused, Region,
    Reorder, State, Vport,
};

/// No bytes of a packet.
pub(crate) struct NoBytes;

impl Reorder<NoBytes> for () {
    fn insert(&mut self, _: u32, _: &NoBytes) {}

    fn remove(&mut self, _: u32) -> Option<NoBytes> {
        None
    }

    fn first_from(&self, _: u32) -> Option<u32> {
        None
    }

    fn count(&self) -> u32 {
        0
    }

    fn clear(&mut self) {}
}

impl<R: Region> PacketBytes<R> for NoBytes {
    fn headers(&self) -> &[u8] {
        &[]
    }

    fn length(&self) -> usize {
        0
    }

    fn crc32(&self, _: u32, _: usize, _: usize) -> Result<u32, Fault> {
        Err(Fault)
    }

    fn copy(&self, _: usize, _: &R, _: u64, _: usize) -> Result<(), Fault> {
        Err(Fault)
    }
}

/// Hands an object in, growing tables as a host does.
pub(crate) fn add<H: Host, T, R>(
    engine: &mut Engine<H>,
    object: T,
    add: impl Fn(&mut Engine<H>, H::Box<T>) -> Result<R, Refused<H::Box<T>>>,
) -> Result<R, Error> {
    let mut object = H::boxed(|| object).ok_or(Error::NoMemory)?;
    loop {
        match add(engine, object) {
            Ok(result) => return Ok(result),
            Err(Refused {
                error: Error::NeedChunk(need),
                object: refused,
            }) => {
                object = refused;
                let chunk = need.allocate().ok_or(Error::NoMemory)?;
                assert!(engine.add_chunk(chunk).is_none());
            }
            Err(refused) => return Err(refused.error),
        }
    }
}

/// Leads a queue pair with that local peer to RTS.
pub(crate) fn lead(peer: u32) -> [Modify; 3] {
    let path = Path {
        kind: PathKind::Local(Vport::default()),
        sgid_index: 0,
        sgid: [0; 16],
        dgid: [0; 16],
        dmac: [0; 6],
        flow_label: 0,
        hop_limit: 0,
        traffic_class: 0,
        sl: 0,
        static_rate: 0,
    };
    [
        Modify {
            state: Some(State::Init),
            access: Some(Access::REMOTE_WRITE),
            pkey_index: Some(0),
            port: Some(1),
            ..Modify::default()
        },
        Modify {
            state: Some(State::Rtr),
            path: Some(path),
            path_mtu: Some(Mtu::Mtu1024),
            dest_qpn: Some(peer),
            rq_psn: Some(0),
            max_dest_rd_atomic: Some(0),
            min_rnr_timer: Some(0),
            ..Modify::default()
        },
        Modify {
            state: Some(State::Rts),
            sq_psn: Some(0),
            timeout: Some(0),
            retry_cnt: Some(0),
            rnr_retry: Some(0),
            max_rd_atomic: Some(0),
            ..Modify::default()
        },
    ]
}
