// SPDX-License-Identifier: GPL-2.0

//! The end of a connection, in the one way that QEMU survives.
//!
//! Linux resets a Unix stream socket whose peer closes it before all is read
//! (`unix_release_sock()`), and QEMU 11.1.3 ends itself when its read fails: `vfio_user_recv_one()`
//! sets the error that `qio_channel_readv_full()` has set already (hw/vfio-user/proxy.c). Nor does
//! it wake a processor of the guest that waits for a reply of a connection that ends: that one
//! waits for `x-msg-timeout`, with the lock of the whole machine.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{recv, send, shutdown, RecvFlags, SendFlags, Shutdown};

use crate::protocol::{refusal, Header, HEADER};

/// Refuses the requests that have come and have no reply, and reads all that has come. The client
/// can send no more from then on. It does not block.
pub(crate) fn drain(stream: impl AsFd) {
    // A read that finds nothing answers the end from here on, and the client's writes fail.
    let _ = shutdown(&stream, Shutdown::Read);
    while let Some(header) = take(&stream) {
        if !header.no_reply {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = send(&stream, &refusal(&header, Errno::IO), flags);
        }
    }
    // Where a message makes no sense, nobody knows where the next one begins.
    while fill(&stream, &mut [0; HEADER]) {}
}

/// Takes a message, of which the header is all that matters.
fn take(stream: impl AsFd) -> Option<Header> {
    let mut head = [0; HEADER];
    if !fill(&stream, &mut head) {
        return None;
    }
    let header = Header::parse(head).ok()?;
    let mut body = vec![0; header.size.saturating_sub(HEADER)];
    fill(&stream, &mut body).then_some(header)
}

/// Reads as many bytes, and returns whether there were so many. Files that come with them are
/// closed.
fn fill(stream: impl AsFd, mut into: &mut [u8]) -> bool {
    while !into.is_empty() {
        match recv(&stream, &mut *into, RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => (),
            Err(_) | Ok((_, 0)) => return false,
            Ok((_, count)) => into = into.get_mut(count..).unwrap_or_default(),
        }
    }
    true
}
