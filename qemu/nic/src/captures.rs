// SPDX-License-Identifier: GPL-2.0

//! The capture that runs. The command line and the control socket begin and end it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::warn;

use crate::capture::pcapng::Interface;
use crate::capture::recorder::{begin, Writer};
use crate::wire::Wire;

/// How long the end of a capture waits for its thread, which a slow disk or the reader of a pipe
/// may hold up.
const PATIENCE: Duration = Duration::from_secs(2);

/// The captures of a process: one at a time. One that runs ends with this.
#[derive(Debug)]
pub struct Captures {
    wire: Arc<Wire>,
    interfaces: Vec<Interface>,
    running: Mutex<Option<(PathBuf, Writer)>>,
}

impl Captures {
    /// No capture yet, of a switch that has these ports.
    pub fn new(wire: &Arc<Wire>, interfaces: Vec<Interface>) -> Self {
        Self {
            wire: Arc::clone(wire),
            interfaces,
            running: Mutex::default(),
        }
    }

    /// Begins a capture. `wire_only`: as long as it runs, queue pairs of this process are connected
    /// by packets even to each other, so that the file has these, too.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or another capture runs (`ResourceBusy`).
    pub fn start(&self, path: &Path, wire_only: bool) -> io::Result<()> {
        let mut running = self.running.lock();
        // One whose file takes no more has ended by itself.
        if let Some((path, _)) = running.as_ref().filter(|(_, writer)| writer.runs()) {
            let told = format!("a capture runs, to {}", path.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, told));
        }
        let (recorder, writer) = begin(path, &self.interfaces, wire_only)?;
        self.wire.set_recorder(Some(recorder));
        *running = Some((path.to_owned(), writer));
        Ok(())
    }

    /// Ends the capture, if one was begun, and answers its file. A begin that a file system holds
    /// up is not waited for.
    pub fn stop(&self) -> Option<PathBuf> {
        let mut running = self.running.try_lock_for(PATIENCE)?;
        let (path, writer) = running.take()?;
        self.wire.set_recorder(None);
        if !writer.wait(PATIENCE) {
            warn!(
                "{}: the file does not take the rest of the capture",
                path.display()
            );
        }
        Some(path)
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::switch::forward::Switch;

    #[test]
    fn the_end_does_not_wait_for_a_begin_that_is_held_up() {
        let wire = Arc::new(Wire::new(Switch::default()).unwrap());
        let captures = Arc::new(Captures::new(&wire, Vec::new()));
        let begins = captures.running.lock();
        let (done, ended) = channel();
        let own = Arc::clone(&captures);
        std::thread::spawn(move || done.send(own.stop()));
        assert_eq!(ended.recv_timeout(PATIENCE.saturating_mul(5)), Ok(None));
        drop(begins);
    }
}
