// SPDX-License-Identifier: GPL-2.0

//! The layouts and values of `ferrule-abi.h` and `ferrule_user_ioctl_cmds.h` are those that the
//! engine and the driver have.
//!
//! A C compiler (`$CC`, else `cc`) says what the headers mean. Every field of every structure and
//! every name that they define has to be compared here.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferrule_engine::{abi, Access};

use self::values::values;

/// The driver's part of the layouts: the replies of the command channel.
#[allow(dead_code, unreachable_pub)]
#[path = "../../verbs/abi.rs"]
mod command;
mod values;

/// A structure: C's name, its size, and each field with offset and size.
struct Layout {
    name: &'static str,
    size: usize,
    fields: Vec<(&'static str, usize, usize)>,
}

fn field_size<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Describes a structure; a field has C's name in the text where that differs.
macro_rules! layout {
    ($name:literal, $type:ty { $($field:ident $(= $c:literal)?),+ $(,)? }) => {
        Layout {
            name: $name,
            size: size_of::<$type>(),
            fields: vec![$((
                layout!(@name $field $($c)?),
                std::mem::offset_of!($type, $field),
                field_size(|object: &$type| &object.$field),
            )),+],
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $c:literal) => { $c };
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!("ferrule_sge", abi::Sge { addr, length, lkey }),
        layout!(
            "ferrule_send_wqe",
            abi::SendWqe {
                wr_id,
                opcode,
                flags,
                num_sge,
                inline_len,
                remote_addr,
                rkey,
                imm_or_inv,
                extra = "zero"
            }
        ),
        layout!(
            "ferrule_recv_wqe",
            abi::RecvWqe {
                wr_id,
                num_sge,
                reserved
            }
        ),
        layout!(
            "ferrule_cqe",
            abi::Cqe {
                wr_id,
                qp_num,
                qp_gen,
                byte_len,
                imm_or_inv,
                src_qp,
                queue_index,
                status,
                opcode,
                flags,
                sl,
                pkey_index,
                vendor_err,
                timestamp,
                ip_version,
                is_xrc,
                vlan,
                reserved,
                phase
            }
        ),
        layout!(
            "ferrule_qp_ctrl",
            abi::QpCtrl {
                sq_producer,
                reserved0,
                rq_producer,
                rq_doorbell,
                reserved1
            }
        ),
        layout!(
            "ferrule_srq_ctrl",
            abi::SrqCtrl {
                producer,
                reserved0,
                consumer,
                reserved1
            }
        ),
        layout!(
            "ferrule_cq_ctrl",
            abi::CqCtrl {
                consumer,
                reserved0,
                arm,
                reserved1
            }
        ),
        layout!(
            "ferrule_db",
            abi::Db {
                rung,
                backlog,
                reserved,
                top
            }
        ),
        layout!(
            "ferrule_status",
            abi::StatusArea {
                sleeping,
                dead,
                deferred,
                reserved,
                top,
                taken,
                reserved1
            }
        ),
        layout!(
            "ferrule_alloc_ucontext_resp",
            command::AllocUcontextResp {
                db_offset,
                status_offset,
                max_inline,
                number
            }
        ),
        layout!(
            "ferrule_create_cq_resp",
            command::CreateCqResp {
                ring_offset,
                ctrl_offset,
                ring_size,
                ctrl_size,
                depth,
                cqn
            }
        ),
        layout!(
            "ferrule_resize_cq_resp",
            command::ResizeCqResp {
                ring_offset,
                ring_size,
                depth,
                base,
                reserved
            }
        ),
        layout!(
            "ferrule_create_cmd",
            command::CreateCmd {
                doorbells,
                reserved
            }
        ),
        layout!(
            "ferrule_create_qp_resp",
            command::CreateQpResp {
                buf_offset,
                buf_size,
                sq_offset,
                sq_depth,
                sq_stride,
                rq_offset,
                rq_depth,
                rq_stride,
                ctrl_offset,
                qp_gen,
                reserved
            }
        ),
        layout!(
            "ferrule_create_srq_resp",
            command::CreateSrqResp {
                buf_offset,
                buf_size,
                ring_offset,
                depth,
                stride,
                ctrl_offset,
                reserved
            }
        ),
        layout!("ferrule_modify_srq_cmd", command::ModifySrqCmd { resp }),
        layout!(
            "ferrule_resize_srq_resp",
            command::ResizeSrqResp {
                buf_offset,
                buf_size,
                ring_offset,
                depth,
                ctrl_offset
            }
        ),
        layout!(
            "ferrule_create_ah_resp",
            command::CreateAhResp { ah, reserved }
        ),
        layout!("ferrule_dm_place", command::DmPlace { offset, length }),
    ]
}

/// The words of the union in the head of a send request, which have no structure of their own in C.
fn union_words() -> Vec<(&'static str, usize)> {
    use std::mem::offset_of;

    vec![
        (
            "atomic.compare_add",
            offset_of!(abi::AtomicWords, compare_add),
        ),
        ("atomic.swap", offset_of!(abi::AtomicWords, swap)),
        ("bind.mw_rkey", offset_of!(abi::BindWords, mw_rkey)),
        ("bind.access", offset_of!(abi::BindWords, access)),
        ("bind.length", offset_of!(abi::BindWords, length)),
        (
            "atomic_write.value",
            offset_of!(abi::AtomicWriteWords, value),
        ),
        (
            "atomic_write.reserved",
            offset_of!(abi::AtomicWriteWords, reserved),
        ),
        ("flush.length", offset_of!(abi::FlushWords, length)),
        ("flush.placement", offset_of!(abi::FlushWords, placement)),
        ("flush.level", offset_of!(abi::FlushWords, level)),
        ("flush.reserved", offset_of!(abi::FlushWords, reserved)),
        ("ud.ah", offset_of!(abi::Destination, ah)),
        ("ud.remote_qpn", offset_of!(abi::Destination, remote_qpn)),
        ("ud.remote_qkey", offset_of!(abi::Destination, remote_qkey)),
        ("ud.reserved", offset_of!(abi::Destination, reserved)),
        ("xrc.remote_srq", offset_of!(abi::XrcWords, remote_srq)),
        ("xrc.reserved", offset_of!(abi::XrcWords, reserved)),
    ]
}

const HEADERS: [&str; 2] = ["ferrule-abi.h", "ferrule_user_ioctl_cmds.h"];

fn include_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../../include/uapi/rdma")
}

/// Compiles and runs a program that prints what the expressions are.
fn ask_c(name: &str, expressions: &[String]) -> Vec<u64> {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (dir.join(format!("{name}.c")), dir.join(name));
    let mut text = String::from("#include <stdio.h>\n#include <stddef.h>\n");
    for header in HEADERS {
        writeln!(text, "#include \"{header}\"").unwrap();
    }
    text.push_str("int main(void)\n{\n");
    for expression in expressions {
        writeln!(
            text,
            "\tprintf(\"%llu\\n\", (unsigned long long)({expression}));"
        )
        .unwrap();
    }
    text.push_str("\treturn 0;\n}\n");
    std::fs::write(&source, text).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-std=gnu11", "-Wall", "-Werror", "-I"])
        .arg(include_dir())
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status()
        .unwrap_or_else(|error| panic!("the C compiler {compiler} does not run: {error}"));
    assert!(status.success(), "the header does not compile");
    let output = Command::new(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn structures_are_as_in_the_header() {
    let mut expressions = Vec::new();
    for Layout { name, fields, .. } in layouts() {
        expressions.push(format!("sizeof(struct {name})"));
        for (field, ..) in fields {
            expressions.push(format!("offsetof(struct {name}, {field})"));
            expressions.push(format!("sizeof(((struct {name} *)0)->{field})"));
        }
    }
    let mut c = ask_c("abi-structures", &expressions)
        .into_iter()
        .map(|value| value as usize);
    for Layout { name, size, fields } in layouts() {
        assert_eq!(c.next(), Some(size), "size of {name}");
        let mut end = 0;
        for (field, offset, length) in fields {
            assert_eq!(c.next(), Some(offset), "offset of {name}.{field}");
            assert_eq!(c.next(), Some(length), "size of {name}.{field}");
            assert_eq!(offset, end, "nothing between the fields of {name}");
            end = offset + length;
        }
        assert_eq!(end, size, "every field of {name}");
    }
}

#[test]
fn words_of_the_union_are_as_in_the_header() {
    let expressions: Vec<_> = union_words()
        .iter()
        .map(|(name, _)| format!("offsetof(struct ferrule_send_wqe, {name})"))
        .collect();
    let c = ask_c("abi-union", &expressions);
    for ((name, rust), c) in union_words().iter().zip(c) {
        let rust = std::mem::offset_of!(abi::SendWqe, extra) + rust;
        assert_eq!(rust as u64, c, "{name}");
    }
}

#[test]
fn values_are_as_in_the_header() {
    let values = values();
    let names: Vec<_> = values.keys().map(|name| (*name).to_owned()).collect();
    for ((name, rust), c) in values.iter().zip(ask_c("abi-values", &names)) {
        assert_eq!(*rust, c, "{name}");
    }
    // The rights are those of the verbs.
    let rights = [
        Access::LOCAL_WRITE,
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
        Access::MW_BIND,
        Access::ZERO_BASED,
        Access::FLUSH_GLOBAL,
        Access::FLUSH_PERSISTENT,
    ];
    assert_eq!(rights.map(|right| right.0), [1, 2, 4, 8, 16, 32, 256, 512]);
}

/// The comparisons above cover all that the headers define.
#[test]
fn nothing_in_the_headers_is_left_out() {
    let read = |header: &str| std::fs::read_to_string(include_dir().join(header)).unwrap();
    let headers = HEADERS.map(read).join("\n");
    let code: String = headers
        .split("/*")
        .enumerate()
        .map(|(i, part)| match part.split_once("*/") {
            Some((_, code)) if i > 0 => code,
            _ => part,
        })
        .collect();
    let words = |text: &str| -> BTreeSet<String> {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map(str::to_owned)
            .collect()
    };
    let mut compared: BTreeSet<String> = values().keys().map(|name| (*name).to_owned()).collect();
    compared.insert("FERRULE_ABI_H".into());
    compared.insert("FERRULE_USER_IOCTL_CMDS_H".into());
    let mut names = words(&code);
    names.retain(|name| name.starts_with("FERRULE_"));
    assert!(names.is_subset(&compared), "{names:?}");
    let structures: BTreeSet<String> = layouts().iter().map(|layout| layout.name.into()).collect();
    for line in code.lines() {
        if let Some(name) = line
            .strip_prefix("struct ")
            .and_then(|line| line.strip_suffix(" {"))
        {
            assert!(structures.contains(name), "struct {name}");
        }
    }
}
