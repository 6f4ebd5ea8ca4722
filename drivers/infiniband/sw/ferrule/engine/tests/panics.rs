// SPDX-License-Identifier: GPL-2.0

//! In the kernel a panic is a crash, so nothing in the engine's machine code may call one.
//!
//! The engine is compiled as the kernel compiles it (optimized, with overflow checks) for a host of
//! which nothing is known. Each function that refers to `core::panicking` has to stand in
//! `panics/list.txt`, and each line there has to be found: the list may only shrink.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};

const OPTIONS: [&str; 5] = [
    "-Ccodegen-units=1",
    "-Copt-level=2",
    "-Coverflow-checks=on",
    "-Cpanic=abort",
    "-Cdebug-assertions=off",
];

/// Compiles the engine, and then the engine for the host of `panics/object.rs`; answers the two
/// object files.
fn compile() -> [PathBuf; 2] {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("panics");
    let [library, object] = ["library.o", "object.o"].map(|name| dir.join(name));
    let emit = |path: &Path| format!("--emit=link,obj={}", path.display());
    // An object file is made anew only where cargo finds something to compile.
    let _ = std::fs::remove_dir_all(dir.join("release"));
    let status = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "rustc",
            "--quiet",
            "--locked",
            "--release",
            "--lib",
            "--target-dir",
        ])
        .arg(&dir)
        .arg("--")
        .args(OPTIONS)
        .arg(emit(&library))
        .env_remove("RUSTFLAGS")
        .status()
        .unwrap();
    assert!(status.success());
    let status = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()))
        .args(["--edition=2021", "--crate-type=lib"])
        .args(OPTIONS)
        .arg(format!("--emit=obj={}", object.display()))
        .arg("--extern")
        .arg(format!(
            "ferrule_engine={}",
            dir.join("release/libferrule_engine.rlib").display()
        ))
        .arg("-L")
        .arg(format!("dependency={}", dir.join("release/deps").display()))
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/panics/object.rs"
        ))
        .status()
        .unwrap();
    assert!(status.success());
    [library, object]
}

/// The functions of an object file that refer to a panic.
fn panicking(path: &Path) -> BTreeSet<String> {
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let mut found = BTreeSet::new();
    let mut functions = 0;
    for section in file.sections() {
        // Each function has a section of its own, which has its name.
        let Some(function) = section.name().unwrap().strip_prefix(".text.") else {
            continue;
        };
        functions += 1;
        for (_, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                continue;
            };
            let symbol = file.symbol_by_index(symbol).unwrap();
            let name = symbol.name().unwrap();
            if name.contains("panicking") || name.contains("_fail") {
                found.insert(format!("{} -> {}", plain(function), plain(name)));
            }
        }
    }
    assert!(functions > 0, "{} has no code", path.display());
    found
}

/// A name as it stands in the source.
fn plain(mangled: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(mangled))
}

#[test]
fn nothing_panics() {
    let found: BTreeSet<_> = compile().iter().flat_map(|path| panicking(path)).collect();
    let list: BTreeSet<String> = include_str!("panics/list.txt")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(str::to_owned)
        .collect();
    assert_eq!(found, list);
}
