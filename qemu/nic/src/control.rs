// SPDX-License-Identifier: GPL-2.0

//! The control socket: who connects is told what has been counted, as Prometheus reads it, and is disconnected. Nothing is
//! read from the socket.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use ferrule_engine::Counters;
use tracing::warn;

use crate::device::Device;
use crate::statistics::{Histogram, Number, Statistics, OBJECTS};
use crate::wire::Wire;

/// How long somebody may take to read.
const PATIENCE: Duration = Duration::from_secs(1);

/// A guest, as it is told of.
struct View<'a> {
    name: &'a str,
    counters: Counters,
    statistics: &'a Statistics,
    /// Frames that have come from its network device, and that were dropped on the way there.
    frames: (u64, u64),
}

/// What a value is, and how it is read.
type Metric = (&'static str, &'static str, fn(&View<'_>) -> u64);

/// Values that only grow.
const COUNTERS: &[Metric] = &[
    ("requests", "send requests taken", |v| v.counters.requests),
    ("messages", "messages of peers taken", |v| {
        v.counters.messages
    }),
    ("bytes", "bytes of these messages", |v| v.counters.bytes),
    ("completions", "completions written", |v| {
        v.counters.completions
    }),
    ("request_errors", "requests that ended with an error", |v| {
        v.counters.request_errors
    }),
    ("flushed", "requests that were flushed", |v| {
        v.counters.flushed
    }),
    (
        "responder_errors",
        "messages of peers that were refused",
        |v| v.counters.responder_errors,
    ),
    (
        "completion_overruns",
        "completions lost in full queues",
        |v| v.counters.completion_overruns,
    ),
    (
        "receiver_not_ready",
        "waits for receive requests of the peer",
        |v| v.counters.receiver_not_ready,
    ),
    ("sequence_errors", "messages or packets out of order", |v| {
        v.counters.sequence_errors
    }),
    ("retries", "retries", |v| v.counters.retries),
    ("unanswered", "timeouts", |v| v.counters.unanswered),
    ("dropped", "datagrams dropped", |v| v.counters.dropped),
    ("qkey_violations", "datagrams with a wrong Q_Key", |v| {
        v.counters.qkey_violations
    }),
    ("stray_doorbells", "doorbells of no queue pair", |v| {
        v.counters.stray_doorbells
    }),
    ("packets_sent", "packets sent", |v| v.counters.packets_sent),
    ("packets_received", "packets received", |v| {
        v.counters.packets_received
    }),
    ("icrc_errors", "packets with a wrong invariant CRC", |v| {
        v.counters.icrc_errors
    }),
    ("duplicates", "packets received twice", |v| {
        v.counters.duplicates
    }),
    ("naks_sent", "negative acknowledgements sent", |v| {
        v.counters.naks_sent
    }),
    ("naks_received", "negative acknowledgements received", |v| {
        v.counters.naks_received
    }),
    ("congestion_marks", "packets with a congestion mark", |v| {
        v.counters.congestion_marks
    }),
    ("accesses", "accesses to BAR0", |v| {
        v.statistics.accesses.get()
    }),
    ("kicks", "accesses that served a context", |v| {
        v.statistics.kicks.get()
    }),
    ("commands", "commands executed", |v| {
        v.statistics.commands.get()
    }),
    ("refused_commands", "commands refused", |v| {
        v.statistics.refused_commands.get()
    }),
    ("interrupts", "vectors raised", |v| {
        v.statistics.interrupts.get()
    }),
    ("frames_received", "frames from the network device", |v| {
        v.frames.0
    }),
    (
        "frames_dropped",
        "frames to the network device that were dropped",
        |v| v.frames.1,
    ),
];

/// Values that are as they are at present.
const GAUGES: &[Metric] = &[
    ("connected", "whether QEMU is there", |v| {
        v.statistics.connected.get()
    }),
    ("memory_bytes", "memory that QEMU has mapped", |v| {
        v.statistics.memory.get()
    }),
    ("registered_bytes", "memory of memory regions", |v| {
        v.statistics.registered.get()
    }),
];

/// A value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

/// What has been counted, in Prometheus' text format. `guests` has their names.
pub fn text(device: &Device, wire: Option<&Wire>, guests: &[String]) -> String {
    let views = guests.iter().enumerate().filter_map(|(port, name)| {
        let frames = wire.map_or((0, 0), |wire| wire.frames(port));
        let (counters, statistics) = (device.counters(port)?, device.statistics(port)?);
        let name = name.as_str();
        Some(View {
            name,
            counters,
            statistics,
            frames,
        })
    });
    let views: Vec<_> = views.collect();
    let mut text = String::new();
    // A string takes all that is written to it.
    let _ = write(&mut text, &views);
    text
}

fn write(text: &mut String, views: &[View<'_>]) -> std::fmt::Result {
    let kinds = [(COUNTERS, "counter", "_total"), (GAUGES, "gauge", "")];
    for (metrics, kind, suffix) in kinds {
        for (name, help, value) in metrics {
            writeln!(text, "# HELP ferrule_{name}{suffix} {help}")?;
            writeln!(text, "# TYPE ferrule_{name}{suffix} {kind}")?;
            for view in views {
                let guest = escaped(view.name);
                writeln!(
                    text,
                    "ferrule_{name}{suffix}{{guest=\"{guest}\"}} {}",
                    value(view)
                )?;
            }
        }
    }
    writeln!(text, "# HELP ferrule_objects objects that exist")?;
    writeln!(text, "# TYPE ferrule_objects gauge")?;
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
    writeln!(
        text,
        "# HELP {name} from the ring to the completion, of one send request in 64"
    )?;
    writeln!(text, "# TYPE {name} histogram")?;
    for view in views {
        histogram(text, name, &escaped(view.name), &view.statistics.latency)?;
    }
    Ok(())
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

/// Serves the socket, for ever.
pub fn serve(
    listener: &UnixListener,
    device: &Arc<Device>,
    wire: Option<&Wire>,
    guests: &[String],
) {
    loop {
        let told = listener.accept().and_then(|(mut stream, _)| {
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.write_all(text(device, wire, guests).as_bytes())
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
