// SPDX-License-Identifier: GPL-2.0

//! The values of the command line's options.

use std::path::PathBuf;
use std::str::FromStr;

use crate::frame::{is_group, Mac};
use crate::switch::address::Address;

/// A guest: `SOCKET[,mac=ADDRESS][,net=SOCKET]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Where its QEMU connects for the function.
    pub path: PathBuf,
    /// The address of the network device that the function belongs to.
    pub mac: Option<Mac>,
    /// Where its QEMU connects with that device.
    pub net: Option<PathBuf>,
}

impl FromStr for Guest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut path, mut mac, mut net) = (text, None, None);
        // A path may have commas.
        while let Some((before, last)) = path.rsplit_once(',') {
            if let Some(value) = last.strip_prefix("mac=") {
                once(
                    &mut mac,
                    address(value).ok_or("no MAC address of a device")?,
                )?;
            } else if let Some(value) = last.strip_prefix("net=") {
                once(&mut net, PathBuf::from(value))?;
            } else {
                break;
            }
            path = before;
        }
        if path.is_empty() || net.as_ref().is_some_and(|net| net.as_os_str().is_empty()) {
            return Err("there is no path of a socket".to_owned());
        }
        let path = PathBuf::from(path);
        Ok(Self { path, mac, net })
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err("one value is given twice".to_owned()),
    }
}

/// The address of a network device: six bytes, of no group and not all zero.
fn address(text: &str) -> Option<Mac> {
    let bytes = text.split(':').map(|byte| {
        let two = byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
        two.then(|| u8::from_str_radix(byte, 16).ok()).flatten()
    });
    let mac: Mac = bytes.collect::<Option<Vec<_>>>()?.try_into().ok()?;
    (!is_group(&mac) && mac != Mac::default()).then_some(mac)
}

/// A link to the switch of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// The other connects: `listen=ADDRESS`.
    Listen(Address),
    /// This one connects: `connect=ADDRESS`.
    Connect(Address),
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("listen", address)) => address.parse().map(Link::Listen),
            Some(("connect", address)) => address.parse().map(Link::Connect),
            _ => Err("a link begins with listen= or connect=".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests() {
        let guest = |path: &str, mac, net: Option<&str>| {
            Ok(Guest {
                path: path.into(),
                mac,
                net: net.map(PathBuf::from),
            })
        };
        let mac = Some([0x52, 0x54, 0, 0x12, 0x34, 0xAB]);
        assert_eq!("a.sock".parse(), guest("a.sock", None, None));
        assert_eq!("a,b".parse(), guest("a,b", None, None));
        assert_eq!("a,mac=52:54:00:12:34:aB".parse(), guest("a", mac, None));
        let both = guest("a,b", mac, Some("n"));
        assert_eq!("a,b,mac=52:54:00:12:34:ab,net=n".parse(), both);
        assert_eq!("a,b,net=n,mac=52:54:00:12:34:ab".parse(), both);
        for bad in [
            "",
            ",net=n",
            "a,net=",
            "a,net=n,net=n",
            "a,mac=",
            "a,mac=52:54:00:12:34",
            "a,mac=52:54:00:12:34:567",
            "a,mac=+1:54:00:12:34:56",
            "a,mac=01:54:00:12:34:56",
            "a,mac=00:00:00:00:00:00",
        ] {
            assert!(bad.parse::<Guest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn links() {
        let path = Address::Path("a=b".into());
        assert_eq!("listen=a=b".parse(), Ok(Link::Listen(path.clone())));
        assert_eq!("connect=a=b".parse(), Ok(Link::Connect(path)));
        for bad in ["a.sock", "connect=", "listen=192.0.2.1:7", "tap=t0"] {
            assert!(bad.parse::<Link>().is_err(), "{bad}");
        }
    }
}
