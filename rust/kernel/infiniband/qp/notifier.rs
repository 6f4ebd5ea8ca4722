// SPDX-License-Identifier: GPL-2.0

//! Events of a queue pair, and how they get to its owner.

use core::ptr::NonNull;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    bindings,
    gate::Gated, //
};

/// Events of a queue pair that are no completions: `enum ib_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is broken.
    Fatal,
    /// A peer asked for what is not possible.
    RequestError,
    /// A peer asked for what is not allowed.
    AccessError,
    /// The first packet arrived before it was told that it may send.
    CommEstablished,
    /// All send requests from before it was told to drain are done.
    SqDrained,
    /// The last request of the shared receive queue is done.
    LastWqeReached,
}

impl Event {
    const ALL: [Event; 6] = [
        Event::Fatal,
        Event::RequestError,
        Event::AccessError,
        Event::CommEstablished,
        Event::SqDrained,
        Event::LastWqeReached,
    ];

    /// The event of a number of `enum ib_event_type`, as devices tell them.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.to_raw() == number)
    }

    fn to_raw(self) -> bindings::ib_event_type {
        match self {
            Event::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            Event::RequestError => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            Event::AccessError => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            Event::CommEstablished => bindings::ib_event_type_IB_EVENT_COMM_EST,
            Event::SqDrained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
            Event::LastWqeReached => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
        }
    }
}

/// The way from a queue pair to its owner.
///
/// It may outlive the pair: then it does nothing any more. Destroying the pair waits for calls that
/// are under way.
#[pin_data]
pub struct Notifier {
    #[pin]
    qp: Gated<bindings::ib_qp>,
}

impl Notifier {
    /// # Safety
    ///
    /// `qp` is valid until the gate is closed.
    pub(super) unsafe fn new(qp: NonNull<bindings::ib_qp>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                // SAFETY: By the requirements of this function.
                qp <- unsafe { Gated::new(qp) },
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Waits for calls that are under way, and lets none begin any more.
    pub(super) fn close(&self) {
        self.qp.close();
    }

    /// Lends the pair to `visit`, unless it has gone. Any context.
    pub(crate) fn with_raw(&self, visit: impl FnOnce(*mut bindings::ib_qp)) {
        self.qp.pass(visit);
    }

    /// Tells the owner of an event. Any context.
    pub fn event(&self, event: Event) {
        self.qp.pass(|qp| {
            // SAFETY: The pair is valid inside of the gate; its handler does not change.
            unsafe {
                let mut raw = bindings::ib_event {
                    device: (*qp).device,
                    event: event.to_raw(),
                    ..Default::default()
                };
                *raw.element.qp.as_mut() = qp;
                if let Some(handler) = (*qp).event_handler {
                    handler(&mut raw, (*qp).qp_context);
                }
            }
        });
    }
}
