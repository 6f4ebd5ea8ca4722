// SPDX-License-Identifier: GPL-2.0

//! The program: a socket and a thread for each guest.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::Parser;
use ferrule_nic::adapter::Adapter;
use ferrule_nic::device::Device;
use ferrule_nic::socket;
use ferrule_nic::worker::Worker;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info};

/// A PCI adapter for each guest, served to QEMU by vfio-user
#[derive(Parser)]
#[command(name = "ferrule-nic", after_help = HOW)]
struct Options {
    /// Where the QEMU of one guest connects, and the MAC address of the guest's network device that the adapter belongs
    /// to; once for each guest
    #[arg(long, value_name = "SOCKET[,mac=ADDRESS]", required = true)]
    guest: Vec<Guest>,
}

/// A guest, as the command line has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Guest {
    path: PathBuf,
    mac: [u8; 6],
}

impl FromStr for Guest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, mac) = match text.rsplit_once(",mac=") {
            Some((path, mac)) => (path, address(mac).ok_or("no MAC address of a device")?),
            None => (text, [0; 6]),
        };
        let path = PathBuf::from(path);
        Ok(Self { path, mac })
    }
}

/// The address of a network device: six bytes, of no group and not all zero.
fn address(text: &str) -> Option<[u8; 6]> {
    let bytes = text.split(':').map(|byte| {
        let two = byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
        two.then(|| u8::from_str_radix(byte, 16).ok()).flatten()
    });
    let mac: [u8; 6] = bytes.collect::<Option<Vec<_>>>()?.try_into().ok()?;
    let [first, ..] = mac;
    (first & 1 == 0 && mac != [0; 6]).then_some(mac)
}

const HOW: &str = "QEMU 10.1.1 or newer, with memory that it shares:
  -machine q35,memory-backend=m0 -object memory-backend-memfd,id=m0,size=1G,share=on
  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"SOCKET\"}}'";

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_target(false)
        .with_writer(io::stderr)
        .init();
    match run(&Options::parse().guest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            error!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// The sockets of the guests; their paths are removed at the end.
#[derive(Default)]
struct Paths(Vec<PathBuf>);

impl Drop for Paths {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn run(guests: &[Guest]) -> Result<(), String> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| error.to_string())?;
    // Who can connect reaches the function of a guest: the user alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let device = Device::new(guests.len()).map_err(|error| error.to_string())?;
    let _worker = Worker::new(&device).map_err(|error| error.to_string())?;
    let mut paths = Paths::default();
    for (port, guest) in guests.iter().enumerate() {
        begin(&device, port, guest)
            .map_err(|error| format!("{}: {error}", guest.path.display()))?;
        paths.0.push(guest.path.clone());
    }
    signals.forever().next();
    info!("ends");
    Ok(())
}

fn begin(device: &Arc<Device>, port: usize, guest: &Guest) -> io::Result<()> {
    let listener = socket::listen(&guest.path)?;
    let name = guest.path.display().to_string();
    let mut adapter = Adapter::new(device, port, &name, guest.mac)?;
    adapter.note("waits for a client");
    // The thread ends with the process.
    std::thread::Builder::new()
        .name(name)
        .spawn(move || socket::serve(&listener, &mut adapter))?;
    Ok(())
}
