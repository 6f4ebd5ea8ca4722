// SPDX-License-Identifier: GPL-2.0

//! The folders of the source are floors: a file imports from its own floor and from those below, no
//! files import each other in a circle, and no two files have one name, nor two types.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// From the bottom up. A folder that is not listed, and a file beside the folders, fails the test.
const FLOORS: [&str; 11] = [
    "packet",
    "base",
    "congestion",
    "steering",
    "memory",
    "object",
    "queue_pair",
    "operation",
    "wire",
    "turn",
    "engine",
];

/// The public face, and tests of what cannot be seen from outside. Both stand above all floors.
const ROOT: [&str; 2] = ["lib.rs", "tests.rs"];

/// The text of each file, by the path of its module (`wire::requester`).
type Tree = BTreeMap<String, String>;

/// The files that each file imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Adds the files of a folder, without tests.
fn read(folder: &Path, module: &str, tree: &mut Tree) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let inside = |name: &str| match module {
            "" => name.to_owned(),
            above => format!("{above}::{name}"),
        };
        if path.is_dir() {
            read(&path, &inside(&name), tree);
        } else if name == "mod.rs" {
            tree.insert(module.to_owned(), fs::read_to_string(&path).unwrap());
        } else if name.ends_with(".rs")
            && name != "tests.rs"
            && !(module.is_empty() && ROOT.contains(&&*name))
        {
            let module = inside(name.trim_end_matches(".rs"));
            tree.insert(module, fs::read_to_string(&path).unwrap());
        }
    }
}

/// The text without comments.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths that a tree of a `use` names: `a::{b, c::d}` names `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<String> {
    let Some((before, inside)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or("").trim();
        return vec![path.to_owned()];
    };
    let inside = inside.trim_end().trim_end_matches('}');
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for letter in inside.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => (),
        }
        if letter == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(letter);
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    let leaves = parts.flat_map(|part| leaves(part));
    leaves
        .map(|leaf| format!("{}{leaf}", before.trim()))
        .collect()
}

/// The paths of this crate that a file names, from its root.
fn named(module: &str, text: &str, tree: &Tree) -> Vec<String> {
    let mut code = code(text);
    let mut paths = Vec::new();
    while let Some(begin) = code
        .match_indices("use ")
        .map(|(at, _)| at)
        .find(|&at| at == 0 || code[..at].ends_with(|before: char| before.is_whitespace()))
    {
        let end = begin + code[begin..].find(';').unwrap_or(code.len() - begin);
        paths.extend(leaves(&code[begin + 4..end]));
        code.replace_range(begin..end, "");
    }
    // Code may name what it has not imported.
    let is_of_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let words = code.split(|letter| !is_of_path(letter));
    let from_root = |word: &&str| word.starts_with("crate::") || word.starts_with("super::");
    paths.extend(words.filter(from_root).map(str::to_owned));

    let above = |module: &str| match module.rsplit_once("::") {
        Some((above, _)) => above.to_owned(),
        None => String::new(),
    };
    let full = |path: String| {
        let mut from = module.to_owned();
        let mut rest = &*path;
        if let Some(rest) = rest.strip_prefix("crate::") {
            return Some(rest.to_owned());
        }
        if let Some(own) = rest.strip_prefix("self::") {
            return Some(format!("{from}::{own}"));
        }
        if rest.starts_with("super::") {
            while let Some(behind) = rest.strip_prefix("super::") {
                rest = behind;
                from = above(&from);
            }
            return Some(format!("{from}::{rest}"));
        }
        // Another crate, or a file of the module's own folder.
        let child = format!("{from}::{}", rest.split("::").next().unwrap_or(""));
        tree.contains_key(&child).then(|| format!("{from}::{rest}"))
    };
    paths.into_iter().filter_map(full).collect()
}

/// The file that a path leads to.
fn file(path: &str, tree: &Tree) -> Option<String> {
    let mut path = path.trim_end_matches("::self");
    loop {
        if tree.contains_key(path) {
            return Some(path.to_owned());
        }
        path = path.rsplit_once("::")?.0;
    }
}

/// The files that each file imports, and complaints about names that are of no file.
fn imports(tree: &Tree) -> (Imports, Vec<String>) {
    let mut all = Imports::new();
    let mut complaints = Vec::new();
    for (module, text) in tree {
        let files = all.entry(module.clone()).or_default();
        for path in named(module, text, tree) {
            match file(&path, tree) {
                Some(file) if file == *module => (),
                Some(file) => drop(files.insert(file)),
                None => complaints.push(format!("{module} names {path}, which is of no floor")),
            }
        }
    }
    (all, complaints)
}

/// How high a file stands.
fn floor(module: &str) -> Option<usize> {
    let folder = module.split("::").next();
    FLOORS.iter().position(|floor| Some(*floor) == folder)
}

/// The imports that run up, and files that stand on no floor.
fn upward(imports: &Imports) -> Vec<String> {
    let mut complaints = Vec::new();
    for (module, files) in imports {
        if floor(module).is_none() {
            complaints.push(format!("{module} stands on no floor"));
        }
        let above = files.iter().filter(|file| floor(file) > floor(module));
        complaints
            .extend(above.map(|file| format!("{module} imports {file}, which stands above it")));
    }
    complaints
}

/// The files that are left when those that import none of the rest are taken away, again and again:
/// all files of circles, and those that stand between or upon them.
fn circles(imports: &Imports) -> Vec<String> {
    let mut rest = imports.clone();
    loop {
        let names: BTreeSet<_> = rest.keys().cloned().collect();
        let before = rest.len();
        let is_imported = |name: &String| rest.iter().any(|(_, files)| files.contains(name));
        let keep: BTreeSet<_> = names
            .iter()
            .filter(|name| is_imported(name) && rest[*name].iter().any(|file| names.contains(file)))
            .cloned()
            .collect();
        rest.retain(|name, _| keep.contains(name));
        if rest.len() == before {
            break;
        }
    }
    let within = |files: &BTreeSet<String>| {
        let files = files.iter().filter(|file| rest.contains_key(*file));
        files.cloned().collect::<Vec<_>>().join(", ")
    };
    let complaint = |(name, files): (&String, &BTreeSet<String>)| {
        format!("{name} is of a circle and imports {}", within(files))
    };
    rest.iter().map(complaint).collect()
}

/// Files of one name in two folders: a reader finds a file by its name.
fn twins(tree: &Tree) -> Vec<String> {
    let mut places = BTreeMap::<_, Vec<_>>::new();
    for module in tree.keys() {
        let name = module.rsplit("::").next();
        places.entry(name).or_default().push(module.as_str());
    }
    places.retain(|_, modules| modules.len() > 1);
    let complaint = |modules: &Vec<_>| format!("{} have one name", modules.join(" and "));
    places.values().map(complaint).collect()
}

/// The types that a file shows to others.
fn types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let item = line.trim_start().strip_prefix("pub")?;
        let item = item.strip_prefix("(crate)").unwrap_or(item).trim_start();
        let (kind, rest) = item.split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "union", "type"].contains(&kind);
        is_type.then(|| rest.split(|c: char| !c.is_alphanumeric()).next())?
    })
}

/// Types of one name in two files: one name is one thing.
fn type_twins(tree: &Tree) -> Vec<String> {
    let mut places = BTreeMap::<_, Vec<_>>::new();
    for (module, text) in tree {
        for name in types(text) {
            places.entry(name).or_default().push(module.as_str());
        }
    }
    places.retain(|_, modules| modules.len() > 1);
    let complaint = |(name, modules): (&&str, &Vec<_>)| {
        format!("{} have each a type {name}", modules.join(" and "))
    };
    places.iter().map(complaint).collect()
}

/// All that is wrong with a tree.
fn complaints(tree: &Tree) -> Vec<String> {
    let (imports, mut complaints) = imports(tree);
    complaints.extend(twins(tree));
    complaints.extend(type_twins(tree));
    complaints.extend(upward(&imports));
    complaints.extend(circles(&imports));
    complaints
}

/// A tree of so few files.
fn of(files: &[(&str, &str)]) -> Tree {
    let owned = |(module, text): &(&str, &str)| ((*module).to_owned(), (*text).to_owned());
    files.iter().map(owned).collect()
}

#[test]
fn imports_run_down() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut tree = Tree::new();
    read(&source, "", &mut tree);
    for folder in FLOORS {
        assert!(tree.contains_key(folder), "{folder} has no mod.rs");
    }
    let (imports, _) = imports(&tree);
    assert!(
        imports.values().map(BTreeSet::len).sum::<usize>() > 400,
        "imports were not found"
    );
    let complaints = complaints(&tree);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// The list in `lib.rs`, which a reader sees first, is that of the floors.
#[test]
fn the_crate_lists_its_floors_in_order() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let text = fs::read_to_string(source).unwrap();
    let lines = text.lines().map(|line| line.trim_start_matches("pub "));
    let modules = lines.filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let floors: Vec<_> = modules
        .filter(|name| !["sim", "tests"].contains(name))
        .collect();
    assert_eq!(floors, FLOORS);
}

#[test]
fn an_import_upwards_is_found() {
    let low = "use crate::{base::psn, wire::{self, requester::run as go}};\n";
    let tree = of(&[
        ("base::psn", ""),
        ("memory::key", low),
        ("wire", ""),
        ("wire::requester", ""),
    ]);
    let expected = [
        "memory::key imports wire, which stands above it",
        "memory::key imports wire::requester, which stands above it",
    ];
    assert_eq!(complaints(&tree), expected);
    let inline = "fn f() { crate::turn::send::run(); } // crate::engine::Engine\n";
    let tree = of(&[("wire", inline), ("turn::send", ""), ("engine", "")]);
    assert_eq!(
        complaints(&tree),
        ["wire imports turn::send, which stands above it"]
    );
}

#[test]
fn a_circle_within_a_floor_is_found() {
    let tree = of(&[
        ("wire", "use responder::receive;\n"),
        ("wire::responder", "use super::reorder;\n"),
        (
            "wire::reorder",
            "use crate::wire::responder::{\n    requests, //\n};\n",
        ),
        ("wire::cnp", ""),
    ]);
    let expected = [
        "wire::reorder is of a circle and imports wire::responder",
        "wire::responder is of a circle and imports wire::reorder",
    ];
    assert_eq!(complaints(&tree), expected);
}

#[test]
fn a_file_beside_the_floors_is_found() {
    let tree = of(&[("helpers", ""), ("base::psn", "use crate::Engine;\n")]);
    let expected = [
        "base::psn names Engine, which is of no floor",
        "helpers stands on no floor",
    ];
    assert_eq!(complaints(&tree), expected);
}

#[test]
fn two_files_of_one_name_are_found() {
    let tree = of(&[
        ("object", ""),
        ("object::opcode", ""),
        ("packet::opcode", ""),
        ("packet::opcodes", ""),
    ]);
    assert_eq!(
        complaints(&tree),
        ["object::opcode and packet::opcode have one name"]
    );
}

#[test]
fn two_types_of_one_name_are_found() {
    let tree = of(&[
        ("base::abi", "pub struct Status {\n"),
        ("base::status", "pub enum Status<'a> {\n"),
        (
            "wire::responder",
            "struct Status(u8);\npub(super) type Own = Status;\n",
        ),
    ]);
    assert_eq!(
        complaints(&tree),
        ["base::abi and base::status have each a type Status"]
    );
}
