// SPDX-License-Identifier: GPL-2.0

//! A capture that runs. The switch hands frames over by a queue that has an end, and goes on
//! whatever becomes of them. A thread writes them. A frame that finds the queue full is lost to the
//! file, and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use tracing::{info, warn};

use super::pcapng::{self, Interface};
use crate::frame::Frame;
use crate::statistics::Number;

/// Frames that may wait to be written.
pub const WAITING: usize = 16_384;

/// Bytes of them.
pub const WAITING_BYTES: u64 = 16 << 20;

/// The counters of an interface.
#[derive(Debug, Default)]
struct Count {
    received: Number,
    dropped: Number,
}

/// State that the switch and the thread of a capture share.
#[derive(Debug)]
struct Shared {
    /// By ports of the switch.
    counts: Vec<Count>,
    /// Bytes of the frames that wait.
    bytes: Number,
    /// The file gets no more.
    ended: AtomicBool,
}

/// A frame that waits: when it came, by which port, and its bytes.
type Entry = (SystemTime, usize, Frame);

/// The switch's end of a capture.
#[derive(Debug)]
pub struct Recorder {
    entries: SyncSender<Entry>,
    shared: Arc<Shared>,
    wire_only: bool,
}

impl Recorder {
    /// Records a frame that has come by a port. It never waits.
    pub fn record(&self, port: usize, frame: &Frame) {
        let Some(count) = self.shared.counts.get(port) else {
            return;
        };
        count.received.add(1);
        let length = frame.bytes().len() as u64;
        let fits = self.shared.bytes.get().saturating_add(length) <= WAITING_BYTES;
        self.shared.bytes.add(length);
        let entry = (SystemTime::now(), port, frame.clone());
        if !fits || self.entries.try_send(entry).is_err() {
            self.shared.bytes.sub(length);
            count.dropped.add(1);
        }
    }

    /// Whether queue pairs of this process are to send packets to each other, so that the file has
    /// these. None are wanted once the file takes no more.
    pub fn is_wire_only(&self) -> bool {
        self.wire_only && !self.shared.ended.load(Ordering::Relaxed)
    }

    /// Frames that have come by a port, and of these those that are not in the file.
    pub fn counts(&self, port: usize) -> (u64, u64) {
        let count = self.shared.counts.get(port);
        count.map_or((0, 0), |count| (count.received.get(), count.dropped.get()))
    }
}

/// The thread of a capture, which ends when the [`Recorder`] is dropped, or the file takes no more.
#[derive(Debug)]
pub struct Writer {
    /// Returns nothing, but ends with the thread.
    ended: Receiver<()>,
}

impl Writer {
    /// Whether it has not ended.
    pub fn runs(&self) -> bool {
        self.ended.try_recv() == Err(TryRecvError::Empty)
    }

    /// Waits for its end, so long at most, and returns whether it has come.
    pub fn wait(&self, patience: Duration) -> bool {
        self.ended.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }
}

/// Opens a file for a capture, and writes what is in front of the frames. Of a pipe it waits
/// neither for a reader nor for space.
fn create(path: &Path, interfaces: &[Interface]) -> io::Result<BufWriter<File>> {
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = BufWriter::new(options.custom_flags(nonblock).open(path)?);
    let written = pcapng::begin(interfaces, &mut file).and_then(|()| file.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(error.kind(), "the pipe is full"),
        _ => error,
    })?;
    // From now on the thread waits for a slow reader, and nobody else does.
    let flags = fcntl_getfl(file.get_ref())?;
    fcntl_setfl(file.get_ref(), flags.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

/// Begins a capture of a switch that has these ports. `wire_only`: see [`Recorder::is_wire_only`].
///
/// # Errors
///
/// The file cannot be opened or written, or there is no thread.
pub fn begin(
    path: &Path,
    interfaces: &[Interface],
    wire_only: bool,
) -> io::Result<(Recorder, Writer)> {
    let file = create(path, interfaces)?;
    let shared = Arc::new(Shared {
        counts: interfaces.iter().map(|_| Count::default()).collect(),
        bytes: Number::default(),
        ended: AtomicBool::default(),
    });
    let (entries, waiting) = sync_channel(WAITING);
    let (ends, ended) = sync_channel(0);
    let recorder = Recorder {
        entries,
        shared: Arc::clone(&shared),
        wire_only,
    };
    let name = path.display().to_string();
    std::thread::Builder::new()
        .name("capture".into())
        .spawn(move || {
            write(&name, file, &waiting, &shared);
            shared.ended.store(true, Ordering::Relaxed);
            drop(ends);
        })?;
    Ok((recorder, Writer { ended }))
}

/// The thread of a capture: it ends when the switch has left its end, or the file takes no more.
fn write(name: &str, mut file: BufWriter<File>, waiting: &Receiver<Entry>, shared: &Shared) {
    let done = frames(&mut file, waiting, shared).and_then(|()| end(&mut file, shared));
    let sum = |of: fn(&Count) -> &Number| {
        let counts = shared.counts.iter().map(|count| of(count).get());
        counts.fold(0, u64::saturating_add)
    };
    let (received, dropped) = (sum(|count| &count.received), sum(|count| &count.dropped));
    match done {
        Ok(()) => info!("{name}: the capture has ended: {received} frames, {dropped} of them lost"),
        Err(error) => warn!("{name}: the capture has ended early: {error}"),
    }
}

fn frames(file: &mut impl Write, waiting: &Receiver<Entry>, shared: &Shared) -> io::Result<()> {
    loop {
        let entry = match waiting.try_recv() {
            Ok(entry) => Some(entry),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                // Readers of the file see all that has come.
                file.flush()?;
                waiting.recv().ok()
            }
        };
        let Some((time, port, frame)) = entry else {
            return Ok(());
        };
        shared.bytes.sub(frame.bytes().len() as u64);
        let interface = u32::try_from(port).unwrap_or(u32::MAX);
        pcapng::packet(interface, since_1970(time), frame.bytes(), file)?;
    }
}

fn end(file: &mut impl Write, shared: &Shared) -> io::Result<()> {
    let now = since_1970(SystemTime::now());
    for (interface, count) in (0..).zip(&shared.counts) {
        let counts = (count.received.get(), count.dropped.get());
        pcapng::statistics(interface, now, counts, file)?;
    }
    file.flush()
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_beyond_the_buffer_are_counted_and_dropped() {
        let shared = Arc::new(Shared {
            counts: vec![Count::default(), Count::default()],
            bytes: Number::default(),
            ended: AtomicBool::default(),
        });
        let (entries, waiting) = sync_channel(WAITING);
        let recorder = Recorder {
            entries,
            shared,
            wire_only: false,
        };
        let small = Frame::new(vec![1; 60]).unwrap();
        (0..WAITING + 3).for_each(|_| recorder.record(1, &small));
        assert_eq!(recorder.counts(1), (WAITING as u64 + 3, 3));
        assert_eq!(recorder.counts(0), (0, 0));
        recorder.record(2, &small);
        while waiting.try_recv().is_ok() {
            recorder.shared.bytes.sub(60);
        }
        let large = Frame::new(vec![1; 65_536]).unwrap();
        (0..300).for_each(|_| recorder.record(0, &large));
        assert_eq!(recorder.counts(0), (300, 300 - 256));
        assert_eq!(recorder.shared.bytes.get(), WAITING_BYTES);
        // Nobody writes any more.
        drop(waiting);
        recorder.record(0, &small);
        assert_eq!(recorder.counts(0), (301, 45));
    }
}
