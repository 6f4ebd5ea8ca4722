// SPDX-License-Identifier: GPL-2.0

//! Mistakes of a person who starts the program: one line tells of each, the status is 1, and
//! nothing is left behind.

use std::os::unix::net::{UnixListener, UnixStream};

use ferrule_nic::device::MAX_GUESTS;

use crate::running::{guest, lines, run, Running};
use crate::wire::Sockets;

/// The one line of a program that is refused.
fn refused(options: &[String]) -> String {
    let (status, output, log) = run(options);
    assert_eq!((status, output.as_str()), (Some(1), ""), "{log}");
    let mut lines = lines(&log);
    // Sockets that were made before are told of, and gone.
    lines.retain(|line| !line.starts_with("INFO"));
    let [line] = <[String; 1]>::try_from(lines).expect("more than one line");
    line.strip_prefix("ERROR ").unwrap().to_owned()
}

#[test]
fn a_socket_in_use() {
    let sockets = Sockets::new();
    let (own, free) = (sockets.path("own"), sockets.path("free"));
    let first = Running::new(&[guest(&own)], sockets.path("log"));
    first.tells("waits for a client");
    let told = refused(&[guest(&free), guest(&own)]);
    assert_eq!(
        told,
        format!("{}: a running process listens there", own.display())
    );
    assert!(!free.exists() && UnixStream::connect(&own).is_ok());
    first.end();
    assert!(!own.exists());
}

#[test]
fn sockets_of_the_dead() {
    let sockets = Sockets::new();
    let names = ["guest", "net", "control", "link"].map(|name| sockets.path(name));
    names
        .iter()
        .for_each(|path| drop(UnixListener::bind(path).unwrap()));
    let [own, net, control, link] = &names;
    let options = [
        format!("{},net={}", guest(own), net.display()),
        format!("--control={}", control.display()),
        format!("--link=listen={}", link.display()),
    ];
    let first = Running::new(&options, sockets.path("log"));
    first.tells("waits for a client");
    first.kill();
    assert!(own.exists());
    let second = Running::new(&options, sockets.path("log"));
    second.tells("waits for a client");
    second.end();
    assert!(names.iter().all(|path| !path.exists()));
}

#[test]
fn a_file_that_is_no_socket() {
    let sockets = Sockets::new();
    let path = sockets.path("file");
    std::fs::write(&path, "dear").unwrap();
    let told = refused(&[guest(&path)]);
    assert_eq!(
        told,
        format!("{}: there is a file that is no socket", path.display())
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "dear");
    let nowhere = sockets.path("no/such");
    let told = refused(&[guest(&nowhere)]);
    assert_eq!(
        told,
        format!(
            "{}: No such file or directory (os error 2)",
            nowhere.display()
        )
    );
}

#[test]
fn guests_that_are_too_many_or_alike() {
    let sockets = Sockets::new();
    let named = |number: u32| guest(&sockets.path(&number.to_string()));
    let many: Vec<_> = (0..=MAX_GUESTS.into()).map(named).collect();
    assert_eq!(
        refused(&many),
        format!("one to {MAX_GUESTS} guests are served")
    );
    let alike = |number| format!("{},mac=02:00:00:00:00:01", named(number));
    assert_eq!(
        refused(&[alike(1), alike(2)]),
        "two guests have one MAC address"
    );
    assert!(!sockets.path("1").exists());
}

#[test]
fn a_link_that_nobody_answers() {
    let sockets = Sockets::new();
    let path = |name: &str| sockets.path(name).display().to_string();
    let options = [
        guest(&sockets.path("a")),
        format!("--link=connect={}", path("link")),
    ];
    let program = Running::new(&options, sockets.path("log"));
    program.tells("no peer answers");
    // It goes on trying, without a word.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let told = program.log();
    let told: Vec<_> = told
        .iter()
        .filter(|line| line.contains(&path("link")))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("WARN"));
    let listener = UnixListener::bind(path("link")).unwrap();
    listener.accept().unwrap();
    program.end();
}

#[test]
fn captures() {
    let sockets = Sockets::new();
    let path = |name: &str| sockets.path(name).display().to_string();
    let own = guest(&sockets.path("a"));
    let to = |file: &str| format!("--capture={file}");
    let told = refused(&[own.clone(), to(&path("no/such"))]);
    assert_eq!(
        told,
        format!(
            "{}: No such file or directory (os error 2)",
            path("no/such")
        )
    );
    let told = refused(&[own.clone(), to("/dev/full")]);
    assert_eq!(told, "/dev/full: No space left on device (os error 28)");
    assert!(!sockets.path("a").exists());

    let ask = |words: &[&str]| {
        let control = path("c");
        let words = [&["capture", control.as_str()], words].concat();
        words.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        refused(&ask(&["--end"])),
        format!("{}: No such file or directory (os error 2)", path("c"))
    );
    let program = Running::new(
        &[own, format!("--control={}", path("c"))],
        sockets.path("log"),
    );
    crate::driver::eventually("a control socket", || UnixStream::connect(path("c")).ok());
    assert_eq!(refused(&ask(&["--end"])), "no capture runs");
    assert_eq!(
        refused(&ask(&["/no/such"])),
        "/no/such: No such file or directory (os error 2)"
    );
    let nothing = (Some(0), String::new(), String::new());
    assert_eq!(run(&ask(&[&path("file"), "--wire-only"])), nothing);
    assert_eq!(
        refused(&ask(&[&path("other")])),
        format!("{}: a capture runs, to {}", path("other"), path("file"))
    );
    assert_eq!(run(&ask(&["--end"])), nothing);
    program.tells("the capture has ended: 0 frames, 0 of them lost");
    // One that runs is whole when the process ends.
    assert_eq!(run(&ask(&[&path("file")])), nothing);
    program.end();
    assert_eq!(
        std::fs::read(path("file")).unwrap()[..4],
        [0x0a, 0x0d, 0x0d, 0x0a]
    );
}
