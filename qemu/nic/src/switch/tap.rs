// SPDX-License-Identifier: GPL-2.0

//! A TAP device of Linux: a network interface of this machine whose cable ends in this process
//! (Documentation/networking/tuntap.rst).

// One call: rustix has no safe form of these requests.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_short};
use std::fmt;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use rustix::fs::{open, Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{ioctl, opcode, IntegerSetter, Opcode, Updater};
use rustix::net::netdevice::name_to_index;
use rustix::net::{socket, AddressFamily, SocketType};

/// Bytes of an interface's name with the zero behind it (`IFNAMSIZ`).
const NAME_SIZE: usize = 16;

/// Where Linux gives out TAP devices.
const CLONE: &str = "/dev/net/tun";

/// Requests and flags of `linux/if_tun.h`.
const TUNSETIFF: Opcode = opcode::write::<c_int>(b'T', 202);
/// See [`TUNSETIFF`].
const TUNSETOFFLOAD: Opcode = opcode::write::<u32>(b'T', 208);
/// Frames with Ethernet headers.
const IFF_TAP: c_short = 0x0002;
/// Nothing in front of them.
const IFF_NO_PI: c_short = 0x1000;

/// The name of a TAP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_bad =
            |byte: u8| byte == b'/' || byte == b':' || byte == b'%' || byte <= b' ' || byte >= 0x7f;
        let length = 1..NAME_SIZE;
        if !length.contains(&text.len()) || text.bytes().any(is_bad) || [".", ".."].contains(&text)
        {
            return Err("no name of a network interface: 1 to 15 letters and digits".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `struct ifreq`, of which these requests use the name and the flags.
#[repr(C)]
struct Request {
    name: [u8; NAME_SIZE],
    flags: c_short,
    rest: [u8; 22],
}

/// Opens the device of this name, and makes it if there is none, which takes `CAP_NET_ADMIN`. One
/// that was made goes when it is closed.
///
/// # Errors
///
/// One line for a person: the device is not there, not this user's, no TAP, or another process has
/// it.
pub fn open_tap(name: &Name) -> Result<OwnedFd, String> {
    let told = |what: &str| format!("{name}: {what}");
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(CLONE, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => told(&format!(
            "there is no {CLONE}; the kernel's module tun makes it"
        )),
        Errno::ACCESS | Errno::PERM => told(&format!("no permission to open {CLONE}")),
        errno => told(&format!("{CLONE}: {errno}")),
    })?;
    let mut request = Request {
        name: [0; NAME_SIZE],
        flags: IFF_TAP | IFF_NO_PI,
        rest: [0; 22],
    };
    request
        .name
        .iter_mut()
        .zip(name.0.bytes())
        .for_each(|(to, byte)| *to = byte);
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which has 40 bytes on each
    // architecture of Linux with 64 bits; `Request` has as many, as the assertion below says, and
    // is this call's alone.
    let done = unsafe { ioctl(&file, Updater::<TUNSETIFF, Request>::new(&mut request)) };
    done.map_err(|errno| match errno {
        Errno::PERM if exists(name) => told("the device is another user's"),
        Errno::PERM => told(&format!(
            "there is no such device, and no permission to make it; as root: ip tuntap add dev {name} mode tap user USER"
        )),
        Errno::BUSY => told("the device is in use"),
        Errno::INVAL => told("the device is no TAP with one queue"),
        errno => told(&errno.to_string()),
    })?;
    // An earlier owner of a persistent device may have let the kernel leave checksums and
    // segmentation to it.
    // SAFETY: TUNSETOFFLOAD takes its argument as a number, not as an address.
    let done = unsafe { ioctl(&file, IntegerSetter::<TUNSETOFFLOAD>::new_usize(0)) };
    done.map_err(|errno| told(&errno.to_string()))?;
    Ok(file)
}

const _: () = assert!(size_of::<Request>() == 40);

/// Whether there is a network interface of this name.
fn exists(name: &Name) -> bool {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None);
    socket
        .and_then(|socket| name_to_index(socket, &name.0))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["t", "tap0", "abcdefghijklmno"] {
            assert_eq!(good.parse(), Ok(Name(good.to_owned())));
        }
        for bad in [
            "",
            "abcdefghijklmnop",
            "a/b",
            "tap%d",
            "a b",
            "..",
            "t\u{e4}p",
        ] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
