// SPDX-License-Identifier: GPL-2.0

//! The program: a socket and a thread for each guest, one thread for the engine, and one for the
//! switch.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use ferrule_nic::adapter::Adapter;
use ferrule_nic::capture::pcapng::Interface;
use ferrule_nic::captures::Captures;
use ferrule_nic::control;
use ferrule_nic::device::Device;
use ferrule_nic::keeper::{self, Keeper, KEEP};
use ferrule_nic::limits;
use ferrule_nic::options::{Guest, Link};
use ferrule_nic::request::{self, Request, DONE};
use ferrule_nic::show;
use ferrule_nic::socket;
use ferrule_nic::switch::address::Address;
use ferrule_nic::switch::endpoint::Endpoint;
use ferrule_nic::switch::forward::Switch;
use ferrule_nic::switch::poll::Poll;
use ferrule_nic::switch::tap::{self, open_tap};
use ferrule_nic::wire::Wire;
use ferrule_nic::worker::Worker;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

/// A PCI adapter for each guest, served to QEMU by vfio-user, and an Ethernet switch between the
/// guests
#[derive(Parser)]
#[command(
    name = "ferrule-nic",
    after_help = HOW,
    after_long_help = format!("{HOW}{MORE}"),
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_help_heading = "Other uses"
)]
struct Options {
    #[command(subcommand)]
    other: Option<Other>,

    /// Where the QEMU of one guest connects; the MAC address of the guest's network device, which
    /// the adapter belongs to; and where QEMU connects with that device, if it is a port of the
    /// switch. Once for each guest
    #[arg(
        long,
        value_name = "SOCKET[,mac=ADDRESS][,net=SOCKET]",
        required = true
    )]
    guest: Vec<Guest>,

    /// A link to the switch of another ferrule-nic, one of which listens: at a Unix socket, or at
    /// an address and port of this machine. There must be one way at most between any two
    #[arg(long, value_name = "listen=ADDRESS|connect=ADDRESS")]
    link: Vec<Link>,

    /// A TAP device of this machine as one more port of the switch. It belongs to the user who
    /// starts ferrule-nic, or is made, which takes CAP_NET_ADMIN, and goes with the process
    #[arg(long, value_name = "NAME")]
    tap: Vec<tap::Name>,

    /// Send packets where queue pairs of this process would reach each other with a copy in memory:
    /// to look at the packets, and for tests. It takes longer
    #[arg(long)]
    wire_only: bool,

    /// Write each frame that the switch gets to a file, as pcapng, which tshark and Wireshark read;
    /// with --wire-only the packets between guests of this process, too
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,

    /// A socket that tells what has been counted, as `ferrule-nic stats` shows it, and begins and
    /// ends captures
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Other {
    /// Shows what a running process has counted of its guests
    Stats {
        /// The socket that ferrule-nic was started with: --control=SOCKET
        socket: PathBuf,

        /// Print it as Prometheus reads it, without a table
        #[arg(long, conflicts_with = "interval")]
        prometheus: bool,

        /// Show what is counted by the second, every so many seconds, until it is ended
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
        interval: Option<u64>,
    },

    /// Begins a capture of a running process, or ends the one that runs
    Capture {
        /// The socket that the process was started with: --control=SOCKET
        socket: PathBuf,

        /// The file to write: see --capture
        #[arg(required_unless_present = "end")]
        file: Option<PathBuf>,

        /// Meanwhile send packets between queue pairs of the process, which then are captured, too,
        /// if these get connected from now on
        #[arg(long)]
        wire_only: bool,

        /// End the capture
        #[arg(long, conflicts_with_all = ["file", "wire_only"])]
        end: bool,
    },

    /// Ends the connections of the process that has started this one, when that has died
    #[command(name = KEEP, hide = true)]
    Keep,
}

const HOW: &str = "QEMU 10.1.1 or newer, with memory that it shares:
  -machine q35,memory-backend=m0 -object memory-backend-memfd,id=m0,size=1G,share=on
  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"SOCKET\"}}'
and the network device of a guest with net=NET:
  -netdev stream,id=n0,server=off,addr.type=unix,addr.path=NET -device virtio-net-pci,netdev=n0,mac=ADDRESS";

const MORE: &str = "

Signals:
  SIGTERM, SIGINT    end the process: captures are complete then, and sockets and TAP devices that it has made are gone

Exit status:
  0  it was ended by a signal, or has shown or done what was asked for
  1  something could not be done, which one line on the standard error tells
  2  the command line is wrong

Examples:
  Two guests with network devices:
    ferrule-nic --guest a.sock,mac=52:54:00:00:00:01,net=a.net --guest b.sock,mac=52:54:00:00:00:02,net=b.net

  The same in two processes:
    ferrule-nic --guest a.sock,mac=52:54:00:00:00:01,net=a.net --link listen=link.sock
    ferrule-nic --guest b.sock,mac=52:54:00:00:00:02,net=b.net --link connect=link.sock

  A way to this machine's network:
    sudo ip tuntap add dev tap0 mode tap user $USER
    sudo ip link set tap0 up
    ferrule-nic --guest a.sock,mac=52:54:00:00:00:01,net=a.net --tap tap0

  All packets of a process that runs with --control c.sock, until the capture is ended:
    ferrule-nic capture c.sock all.pcapng --wire-only
    ferrule-nic capture c.sock --end
    tshark -r all.pcapng";

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
        Some(Other::Capture {
            socket,
            file,
            wire_only,
            ..
        }) => capture(socket, file.as_deref(), *wire_only),
        Some(Other::Keep) => keeper::run(io::stdin()).map_err(|error| error.to_string()),
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
    // The limit may be enough for the guests that there are.
    if let Err(error) = limits::raise_open_files() {
        warn!("the limit of open files cannot be raised: {error}");
    }
    if let Some(told) = limits::overcommit_warning(Path::new(limits::OVERCOMMIT)) {
        warn!("{told}");
    }
    // A process that can connect reaches the function of a guest: the user's alone may.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let mut paths = Paths::default();
    let Options { guest, control, .. } = options;
    let wire = wire(options, &mut paths)?;
    let Wired {
        wire,
        endpoints,
        interfaces,
    } = wire;
    let device = Device::with_wire(guest.len(), wire.clone()).map_err(|error| error.to_string())?;
    let captures = wire.as_ref().map(|wire| Captures::new(wire, interfaces));
    let captures = captures.map(Arc::new);
    let _worker = Worker::new(&device).map_err(|error| error.to_string())?;
    let arrived = Arc::clone(&device);
    let streams = wire.as_ref().filter(|_| !endpoints.is_empty());
    let poll = streams.map(|wire| Poll::new(wire, endpoints, move || arrived.packets_have_come()));
    let _poll = poll.transpose().map_err(|error| error.to_string())?;
    let keeper = Keeper::start().map_err(|error| format!("no process can be started: {error}"))?;
    let keeper = Arc::new(keeper);
    for (port, guest) in guest.iter().enumerate() {
        begin(&device, port, guest, &keeper).map_err(|error| at(&guest.path, &error))?;
        paths.add(&guest.path);
    }
    if let Some(path) = control {
        let names = guest.iter().map(|guest| guest.path.display().to_string());
        let captures = captures.clone();
        tell(path, &device, wire.clone(), names.collect(), captures)
            .map_err(|error| at(path, &error))?;
        paths.add(path);
    }
    // Last, so that a process that is refused leaves another's file as it is.
    if let (Some(captures), Some(path)) = (&captures, &options.capture) {
        let begun = captures.start(path, options.wire_only);
        begun.map_err(|error| at(path, &error))?;
    }
    signals.forever().next();
    if let Some(captures) = captures {
        captures.stop();
    }
    if let Some(losses) = wire.and_then(|wire| wire.losses()) {
        info!("packets for the engine were dropped: {losses}");
    }
    info!("ends");
    Ok(())
}

fn at(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// The switch, and what is at its ports.
struct Wired {
    /// None if there is nothing for it to do.
    wire: Option<Arc<Wire>>,
    endpoints: Vec<Endpoint>,
    /// The ports, as a capture names them.
    interfaces: Vec<Interface>,
}

/// Makes the switch: the ports of the guests, and behind them those of links and TAP devices.
fn wire(options: &Options, paths: &mut Paths) -> Result<Wired, String> {
    let mut switch = Switch::default();
    let mut endpoints = Vec::new();
    let mut interfaces = Vec::new();
    let mut name = |name: String, mac| interfaces.push(Interface { name, mac });
    let mut listen = |port, address: &Address| {
        let listener = Endpoint::listen(port, address);
        let listener = listener.map_err(|error| format!("{address}: {error}"))?;
        if let Some(path) = address.path() {
            paths.add(path);
        }
        Ok::<_, String>(listener)
    };
    let mut macs = HashSet::new();
    for guest in &options.guest {
        if guest.mac.is_some_and(|mac| !macs.insert(mac)) {
            return Err("two guests have one MAC address".to_owned());
        }
        let port = switch.add(guest.mac, guest.net.is_some());
        name(guest.path.display().to_string(), guest.mac);
        if let Some(net) = &guest.net {
            endpoints.push(listen(port, &Address::Path(net.clone()))?);
        }
    }
    for link in &options.link {
        let port = switch.add(None, true);
        let (Link::Listen(address) | Link::Connect(address)) = link;
        name(address.to_string(), None);
        endpoints.push(match link {
            Link::Listen(address) => listen(port, address)?,
            Link::Connect(address) => Endpoint::connect(port, address, Instant::now()),
        });
    }
    for tap in &options.tap {
        let device = open_tap(tap)?;
        let port = switch.add(None, true);
        name(tap.to_string(), None);
        endpoints.push(Endpoint::device(port, tap, device, Instant::now()));
    }
    let Options {
        capture,
        control,
        wire_only,
        ..
    } = options;
    let wanted = !endpoints.is_empty() || *wire_only || capture.is_some() || control.is_some();
    let wire = wanted.then(|| Wire::new(switch)).transpose();
    let wire = wire.map_err(|error| error.to_string())?.map(Arc::new);
    if let Some(wire) = &wire {
        wire.set_wire_only(*wire_only);
    }
    Ok(Wired {
        wire,
        endpoints,
        interfaces,
    })
}

/// Begins to serve the control socket.
fn tell(
    path: &Path,
    device: &Arc<Device>,
    wire: Option<Arc<Wire>>,
    names: Vec<String>,
    captures: Option<Arc<Captures>>,
) -> io::Result<()> {
    let listener = socket::listen(path)?;
    let device = Arc::clone(device);
    // The thread ends with the process.
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            control::serve(
                &listener,
                &device,
                wire.as_deref(),
                &names,
                captures.as_deref(),
            );
        })?;
    Ok(())
}

/// Shows what a process tells at its control socket.
fn stats(socket: &Path, prometheus: bool, interval: Option<u64>) -> io::Result<()> {
    let read = || {
        let text = request::ask(socket, &Request::Stats)?;
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

/// Begins a capture of a process, or ends it if no file is named.
fn capture(socket: &Path, file: Option<&Path>, wire_only: bool) -> Result<(), String> {
    let request = match file {
        // The process may run elsewhere.
        Some(file) => Request::Capture {
            path: std::path::absolute(file).map_err(|error| at(file, &error))?,
            wire_only,
        },
        None => Request::EndCapture,
    };
    let answer = request::ask(socket, &request).map_err(|error| at(socket, &error))?;
    match answer == DONE {
        true => Ok(()),
        false => Err(answer.trim_end().to_owned()),
    }
}

fn begin(device: &Arc<Device>, port: usize, guest: &Guest, keeper: &Arc<Keeper>) -> io::Result<()> {
    let listener = socket::listen(&guest.path)?;
    let name = guest.path.display().to_string();
    let mut adapter = Adapter::new(device, port, &name, guest.mac.unwrap_or_default())?;
    adapter.note("waits for a client");
    let keeper = Arc::clone(keeper);
    // The thread ends with the process.
    std::thread::Builder::new()
        .name(name)
        .spawn(move || socket::serve(&listener, &mut adapter, |stream| keeper.keep(stream)))?;
    Ok(())
}
