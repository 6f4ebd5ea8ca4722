// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of a module.

/// Declares the Rust side of tracepoints whose C side is in the same module.
///
/// As `kernel::tracepoint::declare_trace!`, which only knows the kernel's own tracepoints: here the
/// C symbols are declared by the macro. The C file defines `CREATE_RUST_TRACE_POINTS` and has a
/// `DEFINE_RUST_DO_TRACE` for each.
///
/// The declaration asserts that the C functions are there with these arguments (`unsafe extern`),
/// and, by `safe`, that any code may call them. A tracepoint that is off costs a branch that is
/// patched in, and one that is on copies its arguments.
///
/// ```ignore
/// kernel_ext::declare_trace! {
///     // SAFETY: `trace.c` has a tracepoint of this name with these arguments, which are numbers.
///     unsafe extern "C" {
///         /// A packet has come.
///         pub safe fn my_packet(length: u32);
///     }
/// }
/// ```
#[macro_export]
macro_rules! declare_trace {
    (unsafe extern "C" {
        $($(#[$attr:meta])* $pub:vis safe fn $name:ident($($argname:ident : $argtyp:ty),* $(,)?);)*
    }) => {$(
        $(#[$attr])*
        #[inline(always)]
        $pub fn $name($($argname: $argtyp),*) {
            $crate::kernel::macros::paste! {
                extern "C" {
                    static [<__tracepoint_ $name>]: $crate::bindings::tracepoint;
                    fn [<rust_do_trace_ $name>]($($argname: $argtyp),*);
                }

                // SAFETY: The static key of a tracepoint of this module may be read as long as its
                // code runs.
                let on = unsafe {
                    $crate::kernel::jump_label::static_branch_unlikely!(
                        [<__tracepoint_ $name>],
                        $crate::bindings::tracepoint,
                        key
                    )
                };
                if on {
                    // SAFETY: The declaration asserts it.
                    unsafe { [<rust_do_trace_ $name>]($($argname),*) };
                }
            }
        }
    )*};
}
