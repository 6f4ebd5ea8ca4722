// SPDX-License-Identifier: GPL-2.0

//! A packet with bytes that nobody has written: they would be old memory of the kernel, and would
//! be sent.

#![forbid(unsafe_code)]

use core::mem::MaybeUninit;

use kernel::prelude::*;
use net_ext::skb::NewSkBuff;

pub fn greet(packet: &mut NewSkBuff) -> Result {
    packet.append_with(5, |to| to.append(b"hello"))
}

/// A writer answers with the bytes that it has written. `write` is such a one.
pub fn lend(
    packet: &mut NewSkBuff,
    write: fn(&mut [MaybeUninit<u8>]) -> Result<&mut [u8]>,
) -> Result {
    packet.append_with(5, |to| to.append_by(5, |dst| write(dst)))
}

#[cfg(unsound)]
pub fn leave(packet: &mut NewSkBuff) -> Result {
    //~ E0308
    packet.append_with(5, |to| to.append_by(5, |dst| Ok(dst)))
}

#[cfg(unsound)]
pub fn look(packet: &mut NewSkBuff) -> Result {
    //~ E0631
    packet.append_with(5, |to: &mut [u8]| Ok::<(), Error>(drop(to[0])))
}

#[cfg(unsound)]
pub fn keep<'a>(packet: &mut NewSkBuff, kept: &mut &'a mut [MaybeUninit<u8>]) -> Result {
    packet.append_with(5, |to| {
        to.append_by(5, |dst| {
            //~ E0521
            *kept = dst;
            Err::<&mut [u8], Error>(EIO)
        })
    })
}
