// SPDX-License-Identifier: GPL-2.0

//! Message signalled interrupts.
//!
//! C header: `include/linux/interrupt.h`.

use kernel::{
    device::Bound,
    devres::Devres,
    error::to_result,
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

use super::as_raw;
use crate::bindings;

/// The handler of a function's vectors.
pub trait Handler: Send + Sync + 'static {
    /// The vector of this index has fired. Interrupts are off; on PREEMPT_RT a thread calls. Calls
    /// for one vector follow each other, those for several may be at the same time.
    fn handle(&self, vector: u32);
}

/// A vector's handler in the form that C code gets.
#[repr(C)]
struct Line<H> {
    /// C code finds this at the start.
    call: unsafe extern "C" fn(*mut c_void),
    vector: u32,
    handler: Arc<H>,
}

/// The vectors of a function.
///
/// # Invariants
///
/// The function is bound, and has vectors for all `lines`, of which the first `requested` are
/// requested with their places as cookies: these stay where they are.
struct Lines<H: Handler> {
    function: ARef<pci::Device>,
    lines: KVec<Line<H>>,
    requested: u32,
}

impl<H: Handler> Lines<H> {
    /// The number of the interrupt of a vector.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such vector.
    fn irq(&self, vector: u32) -> Result<u32> {
        // SAFETY: The function is valid.
        let irq = unsafe { bindings::pci_irq_vector(as_raw(&self.function), vector) };
        to_result(irq)?;
        Ok(irq as u32)
    }

    /// The cookie of a vector.
    fn cookie(&mut self, vector: u32) -> *mut c_void {
        // The buffer of the vector stays in place, and `call()` reads of it.
        self.lines.as_mut_ptr().wrapping_add(vector as usize).cast()
    }

    /// Calls the handler. The context is that of [`Handler::handle`].
    ///
    /// # Safety
    ///
    /// `cookie` is that of a vector that is requested.
    unsafe extern "C" fn call(cookie: *mut c_void) {
        // SAFETY: By the requirements of this function. Lines do not change once they are
        // requested.
        let line = unsafe { &*cookie.cast::<Line<H>>() };
        line.handler.handle(line.vector);
    }
}

impl<H: Handler> Drop for Lines<H> {
    fn drop(&mut self) {
        for vector in 0..self.requested {
            let cookie = self.cookie(vector);
            if let Ok(irq) = self.irq(vector) {
                // SAFETY: By the type invariants. The function waits for handlers that are running.
                unsafe { bindings::free_irq(irq, cookie) };
            }
        }
        // SAFETY: By the type invariants. None of the vectors is requested any more.
        unsafe { bindings::pci_free_irq_vectors(as_raw(&self.function)) };
    }
}

/// The vectors of a function, those of MSI-X if it has any, else of MSI, until this is dropped or
/// the function is unbound: then no handler is running any more.
pub struct Interrupts<H: Handler> {
    _lines: Devres<Lines<H>>,
    count: u32,
}

impl<H: Handler> Interrupts<H> {
    /// Takes 1 to `max` vectors, as many as there are. `make` gets the number and makes the handler
    /// of all of them; none has fired yet.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no vector, and those of `make`; `ENOMEM`.
    pub fn new(
        function: &pci::Device<Bound>,
        max: u32,
        name: &'static CStr,
        make: impl FnOnce(u32) -> Result<Arc<H>>,
    ) -> Result<Self> {
        // SAFETY: The function is valid.
        let count = unsafe {
            bindings::pci_alloc_irq_vectors(
                as_raw(function),
                1,
                max,
                bindings::PCI_IRQ_MSIX | bindings::PCI_IRQ_MSI,
            )
        };
        to_result(count)?;
        let count = count as u32;
        // INVARIANT: The function has vectors, and none is requested. `Devres` drops this before
        // the function is unbound, and so does an error.
        let mut lines = Lines {
            function: function.into(),
            lines: KVec::new(),
            requested: 0,
        };
        let handler = make(count)?;
        for vector in 0..count {
            let line = Line {
                call: Lines::<H>::call,
                vector,
                handler: handler.clone(),
            };
            lines.lines.push(line, GFP_KERNEL)?;
        }
        for vector in 0..count {
            let (irq, cookie) = (lines.irq(vector)?, lines.cookie(vector));
            // SAFETY: The vector is the function's, and nobody has requested it. The cookie begins
            // with the function to be called, and stays in place, with the handler, until `Lines`
            // is dropped.
            to_result(unsafe { bindings::request_own_irq(irq, name.as_char_ptr(), cookie) })?;
            // INVARIANT: As just done.
            lines.requested += 1;
        }
        Ok(Interrupts {
            _lines: Devres::new(function.as_ref(), lines)?,
            count,
        })
    }

    /// The number of vectors.
    pub fn count(&self) -> u32 {
        self.count
    }
}
