// SPDX-License-Identifier: GPL-2.0

//! The program: a socket and a thread for each guest, one thread for the engine, and one for the switch.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use ferrule_nic::adapter::Adapter;
use ferrule_nic::control;
use ferrule_nic::device::Device;
use ferrule_nic::options::{Guest, Link};
use ferrule_nic::show;
use ferrule_nic::socket;
use ferrule_nic::switch::address::Address;
use ferrule_nic::switch::endpoint::Endpoint;
use ferrule_nic::switch::forward::Switch;
use ferrule_nic::switch::poll::Poll;
use ferrule_nic::wire::Wire;
use ferrule_nic::worker::Worker;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info};

/// A PCI adapter for each guest, served to QEMU by vfio-user, and an Ethernet switch between the guests
#[derive(Parser)]
#[command(
    name = "ferrule-nic",
    after_help = HOW,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_help_heading = "Other uses"
)]
struct Options {
    #[command(subcommand)]
    other: Option<Other>,

    /// Where the QEMU of one guest connects; the MAC address of the guest's network device, which the adapter belongs to;
    /// and where QEMU connects with that device, if it is a port of the switch. Once for each guest
    #[arg(
        long,
        value_name = "SOCKET[,mac=ADDRESS][,net=SOCKET]",
        required = true
    )]
    guest: Vec<Guest>,

    /// A link to the switch of another ferrule-nic, one of which listens: at a Unix socket, or at an address and port of
    /// this machine. There must be one way at most between any two
    #[arg(long, value_name = "listen=ADDRESS|connect=ADDRESS")]
    link: Vec<Link>,

    /// A socket that tells what has been counted, as `ferrule-nic stats` shows it
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Other {
    /// Shows what a running process has counted of its guests
    Stats {
        /// What it was started with: --control=SOCKET
        socket: PathBuf,

        /// Print it as Prometheus reads it, without a table
        #[arg(long, conflicts_with = "interval")]
        prometheus: bool,

        /// Show what is counted by the second, every so many seconds, until it is ended
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
        interval: Option<u64>,
    },
}

const HOW: &str = "QEMU 10.1.1 or newer, with memory that it shares:
  -machine q35,memory-backend=m0 -object memory-backend-memfd,id=m0,size=1G,share=on
  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"SOCKET\"}}'
and the network device of a guest with net=NET:
  -netdev stream,id=n0,server=off,addr.type=unix,addr.path=NET -device virtio-net-pci,netdev=n0,mac=ADDRESS";

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_target(false)
        .with_writer(io::stderr)
        .init();
    let options = Options::parse();
    let done = match &options.other {
        None => run(&options),
        Some(Other::Stats {
            socket,
            prometheus,
            interval,
        }) => stats(socket, *prometheus, *interval).map_err(|error| at(socket, &error)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            error!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Sockets of this process; their paths are removed at the end.
#[derive(Default)]
struct Paths(Vec<PathBuf>);

impl Paths {
    fn add(&mut self, path: &Path) {
        self.0.push(path.to_owned());
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| error.to_string())?;
    // Who can connect reaches the function of a guest: the user alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let mut paths = Paths::default();
    let Options {
        guest,
        link,
        control,
        ..
    } = options;
    let (wire, endpoints) = wire(guest, link, &mut paths)?;
    let device = Device::with_wire(guest.len(), wire.clone()).map_err(|error| error.to_string())?;
    let _worker = Worker::new(&device).map_err(|error| error.to_string())?;
    let losses = wire.clone();
    let told = wire.clone();
    let arrived = Arc::clone(&device);
    let poll = wire.map(|wire| Poll::new(&wire, endpoints, move || arrived.packets_have_come()));
    let _poll = poll.transpose().map_err(|error| error.to_string())?;
    for (port, guest) in guest.iter().enumerate() {
        begin(&device, port, guest).map_err(|error| at(&guest.path, &error))?;
        paths.add(&guest.path);
    }
    if let Some(path) = control {
        let names = guest.iter().map(|guest| guest.path.display().to_string());
        tell(path, &device, told, names.collect()).map_err(|error| at(path, &error))?;
        paths.add(path);
    }
    signals.forever().next();
    if let Some(losses) = losses.and_then(|wire| wire.losses()) {
        info!("packets for the engine were dropped: {losses}");
    }
    info!("ends");
    Ok(())
}

fn at(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// The switch and the streams of its ports, if it has any: those of the guests, and the links behind them.
fn wire(
    guests: &[Guest],
    links: &[Link],
    paths: &mut Paths,
) -> Result<(Option<Arc<Wire>>, Vec<Endpoint>), String> {
    let mut switch = Switch::default();
    let mut endpoints = Vec::new();
    let mut listen = |port, address: &Address| {
        let listener = Endpoint::listen(port, address);
        let listener = listener.map_err(|error| format!("{address}: {error}"))?;
        if let Some(path) = address.path() {
            paths.add(path);
        }
        Ok::<_, String>(listener)
    };
    let mut macs = HashSet::new();
    for guest in guests {
        if guest.mac.is_some_and(|mac| !macs.insert(mac)) {
            return Err("two guests have one MAC address".to_owned());
        }
        let port = switch.add(guest.mac, guest.net.is_some());
        if let Some(net) = &guest.net {
            endpoints.push(listen(port, &Address::Path(net.clone()))?);
        }
    }
    for link in links {
        let port = switch.add(None, true);
        endpoints.push(match link {
            Link::Listen(address) => listen(port, address)?,
            Link::Connect(address) => Endpoint::connect(port, address, Instant::now()),
        });
    }
    if endpoints.is_empty() {
        return Ok((None, endpoints));
    }
    let wire = Wire::new(switch).map_err(|error| error.to_string())?;
    Ok((Some(Arc::new(wire)), endpoints))
}

/// Begins to serve the control socket.
fn tell(
    path: &Path,
    device: &Arc<Device>,
    wire: Option<Arc<Wire>>,
    names: Vec<String>,
) -> io::Result<()> {
    let listener = socket::listen(path)?;
    let device = Arc::clone(device);
    // The thread ends with the process.
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || control::serve(&listener, &device, wire.as_deref(), &names))?;
    Ok(())
}

/// Shows what a process tells at its control socket.
fn stats(socket: &Path, prometheus: bool, interval: Option<u64>) -> io::Result<()> {
    let read = || {
        let mut text = String::new();
        UnixStream::connect(socket)?.read_to_string(&mut text)?;
        Ok::<_, io::Error>((text, Instant::now()))
    };
    let mut out = io::stdout();
    let (text, mut since) = read()?;
    if prometheus {
        return out.write_all(text.as_bytes());
    }
    let mut before = show::parse(&text);
    let Some(interval) = interval else {
        return out.write_all(show::table(&before, None).as_bytes());
    };
    loop {
        std::thread::sleep(Duration::from_secs(interval));
        let (text, now) = read()?;
        let values = show::parse(&text);
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        let table = show::table(&values, Some((&before, seconds)));
        writeln!(out, "{table}")?;
        (before, since) = (values, now);
    }
}

fn begin(device: &Arc<Device>, port: usize, guest: &Guest) -> io::Result<()> {
    let listener = socket::listen(&guest.path)?;
    let name = guest.path.display().to_string();
    let mut adapter = Adapter::new(device, port, &name, guest.mac.unwrap_or_default())?;
    adapter.note("waits for a client");
    // The thread ends with the process.
    std::thread::Builder::new()
        .name(name)
        .spawn(move || socket::serve(&listener, &mut adapter))?;
    Ok(())
}
