// SPDX-License-Identifier: GPL-2.0

//! Why the bytes of a [`Memory`](crate::Memory) are there.

use kernel::sync::Arc;
use kernel_ext::mm::SharedArea;

use crate::{
    dma_buf::VmappedBuf,
    mapped::Mapped,
    paging::Opened,
    pin::Pin, //
};

/// The reason why the bytes are there.
pub(crate) enum Origin {
    /// They are pages of a program, pinned.
    Pinned(Pin),
    /// They are a buffer of another driver, at kernel addresses.
    Vmapped { _buf: VmappedBuf },
    /// They are a buffer of another driver, which the parent of the device alone reaches.
    DmaBuf(Pin),
    /// They are part of an area that a program may map, and this keeps the area.
    Area { _area: Arc<SharedArea> },
    /// They are pages of a program, which come and go.
    OnDemand(Opened),
    /// A kernel user's promise.
    User,
    /// A kernel user's promise, for what it maps from time to time.
    Mapped(Arc<Mapped>),
}
