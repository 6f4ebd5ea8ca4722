// SPDX-License-Identifier: GPL-2.0

//! The driver's directory in debugfs, with one for each device in it, by the device's name.

use kernel::{
    debugfs::{
        Dir,
        File,
        Reader,
        Writer, //
    },
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    uaccess::UserSliceReader, //
};

use super::{
    report::Report,
    shared::Shared, //
};

kernel::sync::global_lock! {
    // SAFETY: `Root::new` initialises it, before there are devices.
    unsafe(uninit) static ROOT: Mutex<Option<Dir>> = None;
}

/// The driver's directory, as long as the module is loaded.
pub(crate) struct Root(());

impl Root {
    /// Makes the directory.
    ///
    /// # Safety
    ///
    /// To be called once, when the module is loaded.
    pub(crate) unsafe fn new() -> Self {
        // SAFETY: The caller calls this once.
        unsafe { ROOT.init() };
        *ROOT.lock() = Some(Dir::new(c"ferrule"));
        Root(())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let root = ROOT.lock().take();
        drop(root);
    }
}

/// The switches of a device: not 0 is on.
struct Switches {
    wire_only: Atomic<u32>,
    gso: Atomic<u32>,
}

/// A file that shows one of them, and sets it.
struct Switch {
    all: Arc<Switches>,
    one: fn(&Switches) -> &Atomic<u32>,
}

impl Writer for Switch {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", (self.one)(&self.all).load(Relaxed))
    }
}

impl Reader for Switch {
    fn read_from_slice(&self, reader: &mut UserSliceReader) -> Result {
        (self.one)(&self.all).read_from_slice(reader)
    }
}

/// A directory by one name.
#[pin_data]
struct Files {
    #[pin]
    _engine: File<Report>,
    #[pin]
    _wire_only: File<Switch>,
    #[pin]
    _gso: File<Switch>,
    /// Below the files, so that it is removed after them.
    _dir: Dir,
}

/// A device's directory.
#[pin_data]
pub(super) struct Directory {
    shared: Shared,
    switches: Arc<Switches>,
    #[pin]
    files: Mutex<Option<Pin<KBox<Files>>>>,
}

impl Directory {
    /// That of a device which has no name yet, and so no directory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(shared: Shared) -> Result<impl PinInit<Self, Error>> {
        let switches = Switches {
            wire_only: Atomic::new(0),
            gso: Atomic::new(1),
        };
        let switches = Arc::new(switches, GFP_KERNEL)?;
        Ok(try_pin_init!(Self {
            files <- new_mutex!(None, "Directory::files"),
            switches,
            shared,
        }))
    }

    fn files(name: &CStr, shared: &Shared, switches: &Arc<Switches>) -> Result<Pin<KBox<Files>>> {
        let dir = ROOT.lock().as_ref().ok_or(ENODEV)?.subdir(name);
        let switch = |one| Switch {
            all: switches.clone(),
            one,
        };
        KBox::pin_init(
            try_pin_init!(Files {
                _engine <- dir.read_only_file(c"engine", Report(shared.clone())),
                _wire_only <- dir.read_write_file(c"wire_only", switch(|all| &all.wire_only)),
                _gso <- dir.read_write_file(c"gso", switch(|all| &all.gso)),
                _dir: dir,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The device has another name, which no other one has, or none. Without a name or memory it
    /// has no directory.
    pub(super) fn set_name(&self, name: Option<&CStr>) {
        let mut files = self.files.lock();
        // This waits for programs that read or write one of the files.
        *files = None;
        *files = name.and_then(|name| Self::files(name, &self.shared, &self.switches).ok());
    }

    /// Whether connections that are made from now on take the wire, though their peer is here.
    /// Packets to the own addresses come back by the loopback device.
    pub(super) fn is_wire_only(&self) -> bool {
        self.switches.wire_only.load(Relaxed) != 0
    }

    /// Whether the packets of connections that are made from now on may leave in lists.
    pub(super) fn has_gso(&self) -> bool {
        self.switches.gso.load(Relaxed) != 0
    }
}
