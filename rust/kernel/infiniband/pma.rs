// SPDX-License-Identifier: GPL-2.0

//! The performance management agent of a port (IBA volume 1, 16.1): `ports/1/counters` in sysfs,
//! and responses to management datagrams that ask for the same.
//!
//! Nobody can set counters back: the agent refuses to set anything.
//!
//! C headers: `include/rdma/ib_mad.h`, `include/rdma/ib_pma.h`.

use kernel::prelude::*;

use crate::{
    bindings,
    port::PORT,
    Device,
    Driver, //
};

/// The counts of a port since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCounters {
    /// Data in words of 4 bytes, headers among them, and packets.
    pub xmit_data: u64,
    /// The same, received.
    pub rcv_data: u64,
    /// Packets that were sent.
    pub xmit_packets: u64,
    /// Packets that were received.
    pub rcv_packets: u64,
    /// Those of the packets sent that went to a multicast group.
    pub multicast_xmit_packets: u64,
    /// Those of the packets received that came to a multicast group.
    pub multicast_rcv_packets: u64,
    /// Packets received that are malformed, have a wrong CRC, or found no space.
    pub rcv_errors: u64,
    /// Packets that were to be sent and got lost in the port.
    pub xmit_discards: u64,
}

type Mad = [u8; size_of::<bindings::ib_mad>()];

// Places in a datagram (IBA volume 1, 13.4.2 and 16.1.1).
const MGMT_CLASS: usize = 1;
const CLASS_VERSION: usize = 2;
const METHOD: usize = 3;
const STATUS: usize = 4;
const ATTRIBUTE: usize = 16;
const DATA: usize = 64;

/// This bit of a method marks a response.
const RESPONSE: u8 = 0x80;

// Attributes (IBA volume 1, table 246).
const CLASS_PORT_INFO: u16 = 0x0001;
const PORT_COUNTERS: u16 = 0x0012;
const PORT_COUNTERS_EXTENDED: u16 = 0x001d;

/// `IB_PMA_CLASS_CAP_EXT_WIDTH`: there are the counters of 64 bits, those of unicast and multicast
/// among them.
const CAP_EXT_WIDTH: u16 = 0x0200;

// Statuses (IBA volume 1, table 115).
const BAD_VERSION: u16 = 1 << 2;
const UNSUPPORTED_METHOD: u16 = 2 << 2;
const UNSUPPORTED_ATTRIBUTE: u16 = 3 << 2;
const INVALID_FIELD: u16 = 7 << 2;

/// Writes to a datagram, which has space for all that is written here.
fn put(mad: &mut Mad, at: usize, bytes: &[u8]) {
    if let Some(place) = mad.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// The counter stops at all ones (IBA volume 1, 16.1.3.5).
fn saturated<T: TryFrom<u64>>(value: u64, ones: T) -> T {
    T::try_from(value).unwrap_or(ones)
}

/// Writes the attribute that the request asks for, and returns the status.
fn get(request: &Mad, response: &mut Mad, read: impl FnOnce() -> PortCounters) -> u16 {
    let attribute = u16::from_be_bytes([request[ATTRIBUTE], request[ATTRIBUTE + 1]]);
    if attribute == CLASS_PORT_INFO {
        put(response, DATA, &[1, 1]);
        put(response, DATA + 2, &CAP_EXT_WIDTH.to_be_bytes());
        return 0;
    }
    if attribute != PORT_COUNTERS && attribute != PORT_COUNTERS_EXTENDED {
        return UNSUPPORTED_ATTRIBUTE;
    }
    let port = request[DATA + 1];
    if u32::from(port) != PORT {
        return INVALID_FIELD;
    }
    response[DATA + 1] = port;
    let now = read();
    if attribute == PORT_COUNTERS {
        let short = [(8, now.rcv_errors), (14, now.xmit_discards)];
        for (at, value) in short {
            put(
                response,
                DATA + at,
                &saturated(value, u16::MAX).to_be_bytes(),
            );
        }
        let words = [
            now.xmit_data,
            now.rcv_data,
            now.xmit_packets,
            now.rcv_packets,
        ];
        for (index, value) in words.into_iter().enumerate() {
            let at = DATA + 24 + index * size_of::<u32>();
            put(response, at, &saturated(value, u32::MAX).to_be_bytes());
        }
    } else {
        let all = [
            now.xmit_data,
            now.rcv_data,
            now.xmit_packets,
            now.rcv_packets,
            now.xmit_packets.wrapping_sub(now.multicast_xmit_packets),
            now.rcv_packets.wrapping_sub(now.multicast_rcv_packets),
            now.multicast_xmit_packets,
            now.multicast_rcv_packets,
        ];
        for (index, value) in all.into_iter().enumerate() {
            put(
                response,
                DATA + 8 + index * size_of::<u64>(),
                &value.to_be_bytes(),
            );
        }
    }
    0
}

/// Makes the response to a request, if it is one to this agent.
fn respond(request: &Mad, response: &mut Mad, read: impl FnOnce() -> PortCounters) -> bool {
    let class = u32::from(request[MGMT_CLASS]);
    let method = request[METHOD];
    if class != bindings::IB_MGMT_CLASS_PERF_MGMT || method & RESPONSE != 0 {
        return false;
    }
    *response = [0; size_of::<Mad>()];
    let (header, _) = request.split_at(DATA);
    put(response, 0, header);
    let status = if request[CLASS_VERSION] != 1 {
        BAD_VERSION
    } else if u32::from(method) != bindings::IB_MGMT_METHOD_GET {
        UNSUPPORTED_METHOD
    } else {
        get(request, response, read)
    };
    response[METHOD] = bindings::IB_MGMT_METHOD_GET_RESP as u8;
    put(response, STATUS, &status.to_be_bytes());
    true
}

/// `process_mad`.
///
/// # Safety
///
/// `dev` is a registered device of the driver `D`; `request` and `response` are valid, each for
/// itself, and nobody else uses them meanwhile.
pub(crate) unsafe extern "C" fn process_mad<D: Driver>(
    dev: *mut bindings::ib_device,
    _flags: c_int,
    port: u32,
    _wc: *const bindings::ib_wc,
    _grh: *const bindings::ib_grh,
    request: *const bindings::ib_mad,
    response: *mut bindings::ib_mad,
    _size: *mut usize,
    _pkey_index: *mut u16,
) -> c_int {
    let success = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS as c_int;
    let Some(read) = D::PORT_COUNTERS else {
        return success;
    };
    if port != PORT {
        return bindings::ib_mad_result_IB_MAD_RESULT_FAILURE as c_int;
    }
    // SAFETY: By the requirements of this function. The two are plain bytes of this size, which
    // have no alignment.
    let (dev, request, response) = unsafe {
        (
            Device::<D>::from_raw(dev),
            &*request.cast::<Mad>(),
            &mut *response.cast::<Mad>(),
        )
    };
    if respond(request, response, || read(dev)) {
        success | bindings::ib_mad_result_IB_MAD_RESULT_REPLY as c_int
    } else {
        // The core hands the datagram to whoever is registered for it.
        success
    }
}
