// SPDX-License-Identifier: GPL-2.0

//! The memory check: whether the device sees the memory that this machine sees.
//!
//! A virtual machine whose memory is not shared works on a copy of what the device is given, and
//! neither would ever see the bytes of the other.

use kernel::{
    device::Bound,
    pci,
    prelude::*, //
};
use kernel_ext::{
    dma::DmaArea,
    random::random_u32, //
};

use super::{
    interface::{
        check,
        register, //
    },
    registers::Registers,
};

/// Runs the check in the first words of an area.
///
/// # Errors
///
/// `ENODEV` if the device does not see them, which the log tells. For any other error, the driver
/// core would tell of it once more.
pub(super) fn run(
    function: &pci::Device<Bound>,
    registers: &Registers,
    memory: &DmaArea,
) -> Result {
    let (nonce, answer) = (0, size_of::<u64>());
    let area = memory.area();
    let address = memory.pages().next().ok_or(EINVAL)?;
    let value = u64::from(random_u32()) << 32 | u64::from(random_u32());
    area.store_u64(nonce, value)?;
    area.store_u64(answer, 0)?;
    registers.write_halves(register::CHECK_ADDRESS, address);
    registers.write_halves(register::CHECK_NONCE, value);
    registers.write(register::CHECK, 1);
    match registers.read(register::CHECK)? {
        check::SHARED if area.load_u64_acquire(answer)? == !value => return Ok(()),
        check::SHARED | check::DIFFERS => dev_err!(
            function,
            "the device sees other memory: the machine's has to be shared (QEMU: share=on)\n"
        ),
        check::NO_MEMORY => dev_err!(function, "the device cannot reach the machine's memory\n"),
        other => dev_err!(function, "the memory check has failed: {other}\n"),
    }
    Err(ENODEV)
}
