// SPDX-License-Identifier: GPL-2.0

//! The program: a socket and a thread for each guest.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use ferrule_nic::adapter::Adapter;
use ferrule_nic::socket;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info};

/// A PCI adapter for each guest, served to QEMU by vfio-user
#[derive(Parser)]
#[command(name = "ferrule-nic", after_help = HOW)]
struct Options {
    /// Where the QEMU of one guest connects; once for each guest
    #[arg(long, value_name = "SOCKET", required = true)]
    guest: Vec<PathBuf>,
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

fn run(guests: &[PathBuf]) -> Result<(), String> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| error.to_string())?;
    // Who can connect reaches the function of a guest: the user alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let mut paths = Paths::default();
    for path in guests {
        begin(path).map_err(|error| format!("{}: {error}", path.display()))?;
        paths.0.push(path.clone());
    }
    signals.forever().next();
    info!("ends");
    Ok(())
}

fn begin(path: &Path) -> io::Result<()> {
    let listener = socket::listen(path)?;
    let name = path.display().to_string();
    let mut adapter = Adapter::new(&name)?;
    adapter.note("waits for a client");
    // The thread ends with the process.
    std::thread::Builder::new()
        .name(name)
        .spawn(move || socket::serve(&listener, &mut adapter))?;
    Ok(())
}
