// SPDX-License-Identifier: GPL-2.0

//! The control socket: it does what a client asks for, or tells it what has been counted, as
//! Prometheus reads it; and disconnects it.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use ferrule_engine::Counters;
use tracing::warn;

use crate::captures::Captures;
use crate::device::Device;
use crate::request::{self, Request, DONE};
use crate::statistics::{Histogram, Number, Statistics, OBJECTS};
use crate::wire::Wire;

/// How long somebody may take to ask, and to read.
const PATIENCE: Duration = Duration::from_secs(1);

/// A guest, as it is told of.
struct View<'a> {
    name: &'a str,
    counters: Counters,
    statistics: &'a Statistics,
    /// Frames that have come from its network device, and that were dropped on the way there.
    frames: (u64, u64),
    /// Frames that have come from there since a capture runs, and those that it has lost.
    recorded: (u64, u64),
}

/// A value's name, its meaning, and the way to read it.
type Metric = (&'static str, &'static str, fn(&View<'_>) -> u64);

/// Makes the metrics of fields of a [`View`] that have the same names: `counters` are numbers,
/// `statistics` are read.
macro_rules! metrics {
    (counters: $($name:ident: $help:literal,)*) => {
        [$((stringify!($name), $help, |view| view.counters.$name)),*]
    };
    (statistics: $($name:ident: $help:literal,)*) => {
        [$((stringify!($name), $help, |view| view.statistics.$name.get())),*]
    };
}

/// The engine's counters.
const ENGINE: &[Metric] = &metrics! { counters:
    requests: "send requests taken",
    messages: "messages of peers taken",
    bytes: "bytes of these messages",
    completions: "completions written",
    request_errors: "requests that ended with an error",
    flushed: "requests that were flushed",
    responder_errors: "messages of peers that were refused",
    completion_overruns: "completions lost in full queues",
    receiver_not_ready: "waits for receive requests of the peer",
    sequence_errors: "messages or packets out of order",
    retries: "retries",
    unanswered: "timeouts",
    dropped: "datagrams dropped",
    qkey_violations: "datagrams with a wrong Q_Key",
    stray_doorbells: "doorbells of no queue pair",
    packets_sent: "packets sent",
    packets_received: "packets received",
    icrc_errors: "packets with a wrong invariant CRC",
    duplicates: "packets received twice",
    naks_sent: "negative acknowledgements sent",
    naks_received: "negative acknowledgements received",
    congestion_marks: "packets with a congestion mark",
};

/// Other counters of a guest.
const GUEST: &[Metric] = &metrics! { statistics:
    accesses: "accesses to BAR0",
    kicks: "accesses that served a context",
    commands: "commands executed",
    refused_commands: "commands refused",
    interrupts: "vectors raised",
};

/// The switch's counters.
const SWITCH: &[Metric] = &[
    (
        "frames_received",
        "frames from the network device",
        |view| view.frames.0,
    ),
    (
        "frames_dropped",
        "frames to the network device that were dropped",
        |view| view.frames.1,
    ),
    (
        "frames_captured",
        "frames from the guest since a capture runs, lost ones among them",
        |view| view.recorded.0,
    ),
    (
        "frames_lost_to_capture",
        "frames that the capture has lost",
        |view| view.recorded.1,
    ),
];

/// Values that are as they are at present.
const GAUGES: &[Metric] = &[
    ("connected", "whether QEMU is there", |view| {
        view.statistics.connected.get()
    }),
    ("memory_bytes", "memory that QEMU has mapped", |view| {
        view.statistics.memory.get()
    }),
    ("registered_bytes", "memory of memory regions", |view| {
        view.statistics.registered.get()
    }),
];

/// A value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

/// All values, in Prometheus' text format. `guests` has their names.
pub fn text(device: &Device, wire: Option<&Wire>, guests: &[String]) -> String {
    let views = guests.iter().enumerate().filter_map(|(port, name)| {
        let frames = wire.map_or((0, 0), |wire| wire.frames(port));
        let recorded = wire.map_or((0, 0), |wire| wire.recorded(port));
        let (counters, statistics) = (device.counters(port)?, device.statistics(port)?);
        let name = name.as_str();
        Some(View {
            name,
            counters,
            statistics,
            frames,
            recorded,
        })
    });
    let views: Vec<_> = views.collect();
    let mut text = String::new();
    // A string takes all that is written to it.
    let _ = write(&mut text, &views);
    text
}

fn write(text: &mut String, views: &[View<'_>]) -> std::fmt::Result {
    let kinds = [
        (ENGINE, "counter", "_total"),
        (GUEST, "counter", "_total"),
        (SWITCH, "counter", "_total"),
        (GAUGES, "gauge", ""),
    ];
    for (metrics, kind, suffix) in kinds {
        for (name, help, value) in metrics {
            let name = format!("ferrule_{name}{suffix}");
            heading(text, &name, help, kind)?;
            for view in views {
                let (guest, value) = (escaped(view.name), value(view));
                writeln!(text, "{name}{{guest=\"{guest}\"}} {value}")?;
            }
        }
    }
    heading(text, "ferrule_objects", "objects that exist", "gauge")?;
    for view in views {
        let guest = escaped(view.name);
        for (kind, count) in OBJECTS.iter().zip(&view.statistics.objects) {
            let count = Number::get(count);
            writeln!(
                text,
                "ferrule_objects{{guest=\"{guest}\",kind=\"{kind}\"}} {count}"
            )?;
        }
    }
    let name = "ferrule_latency_seconds";
    let help = "from the ring to the completion, of one send request in 64";
    heading(text, name, help, "histogram")?;
    for view in views {
        histogram(text, name, &escaped(view.name), &view.statistics.latency)?;
    }
    Ok(())
}

/// The lines in front of the values of a metric.
fn heading(text: &mut String, name: &str, help: &str, kind: &str) -> std::fmt::Result {
    writeln!(text, "# HELP {name} {help}")?;
    writeln!(text, "# TYPE {name} {kind}")
}

fn histogram(text: &mut String, name: &str, guest: &str, from: &Histogram) -> std::fmt::Result {
    const NANO: f64 = 1e-9;
    let mut total = 0u64;
    let bounds = Histogram::bounds().map(|bound| (bound as f64 * NANO).to_string());
    for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(from.counts()) {
        total = total.saturating_add(count);
        writeln!(
            text,
            "{name}_bucket{{guest=\"{guest}\",le=\"{bound}\"}} {total}"
        )?;
    }
    let sum = from.sum() as f64 * NANO;
    writeln!(text, "{name}_sum{{guest=\"{guest}\"}} {sum}")?;
    writeln!(text, "{name}_count{{guest=\"{guest}\"}} {total}")
}

/// Begins or ends a capture.
fn perform(request: &Request, captures: Option<&Captures>) -> Result<(), String> {
    let captures = captures.ok_or("this process has no switch")?;
    match request {
        Request::Stats => Ok(()),
        Request::Capture { path, wire_only } => captures
            .start(path, *wire_only)
            .map_err(|error| format!("{}: {error}", path.display())),
        Request::EndCapture => match captures.stop() {
            Some(_) => Ok(()),
            None => Err("no capture runs".to_owned()),
        },
    }
}

/// Serves the socket, for ever.
pub fn serve(
    listener: &UnixListener,
    device: &Arc<Device>,
    wire: Option<&Wire>,
    guests: &[String],
    captures: Option<&Captures>,
) {
    loop {
        let told = listener.accept().and_then(|(mut stream, _)| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            let answer = match request::read(&stream)? {
                Ok(Request::Stats) => Ok(text(device, wire, guests)),
                Ok(request) => perform(&request, captures).map(|()| DONE.to_owned()),
                Err(why) => Err(why),
            };
            let answer = answer.unwrap_or_else(|why| format!("{why}\n"));
            stream.write_all(answer.as_bytes())
        });
        match told {
            Ok(()) => (),
            Err(error) if gone(&error) => (),
            Err(error) => {
                warn!("the control socket: {error}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// It is the reader's own affair that it has not got all.
fn gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionReset | TimedOut | WouldBlock
    )
}
