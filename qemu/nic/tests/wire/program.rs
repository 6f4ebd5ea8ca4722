// SPDX-License-Identifier: GPL-2.0

//! The program itself, twice, by its options.

use super::{frame, mac, Peer, Sockets};
use crate::driver::eventually;
use crate::running::{run, Running};

#[test]
fn two_programs_with_a_link() {
    let sockets = Sockets::new();
    let path = |name: &str| sockets.path(name).display().to_string();
    let start = |number: u8, link: &str| {
        let [.., last] = mac(number);
        let guest = path(&format!("g{number}"));
        let net = path(&format!("n{number}"));
        let options = [
            format!("--guest={guest},mac=02:00:00:00:01:{last:02x},net={net}"),
            format!("--link={link}={}", path("link")),
        ];
        Running::new(&options, sockets.path(&format!("log{number}")))
    };
    let programs = [start(1, "listen"), start(2, "connect")];
    let [mut one, mut two] = ["n1", "n2"].map(|name| Peer::new(&sockets.path(name)));
    let hello = frame(mac(2), mac(1), b"hello");
    let timeout = std::time::Duration::from_millis(50);
    two.0.set_read_timeout(Some(timeout)).unwrap();
    eventually("a frame", || {
        assert!(one.send(&hello));
        (two.receive()? == hello).then_some(())
    });
    programs.into_iter().for_each(Running::end);
    for name in ["g1", "n1", "g2", "n2", "link"] {
        assert!(!sockets.path(name).exists(), "{name}");
    }
}

#[test]
fn refused_options() {
    for options in [
        &["--guest=g,net="][..],
        &["--guest=g", "--link=tcp"],
        &["--guest=g", "--link=listen=192.0.2.1:7"],
    ] {
        let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
        assert_eq!(run(&options).0, Some(2));
    }
}

#[test]
fn it_tells_what_it_has_counted() {
    let sockets = Sockets::new();
    let path = |name: &str| sockets.path(name).display().to_string();
    let options = [
        format!("--guest={}", path("g")),
        format!("--control={}", path("c")),
    ];
    let program = Running::new(&options, sockets.path("log"));
    let stats = |more: &[&str]| {
        let control = path("c");
        let command = ["stats", control.as_str()]
            .into_iter()
            .chain(more.iter().copied());
        let command: Vec<_> = command.map(str::to_owned).collect();
        let (status, text, _) = run(&command);
        (status == Some(0)).then_some(text)
    };
    let table = eventually("a table", || stats(&[]));
    assert!(table.lines().next().unwrap().ends_with(&path("g")));
    assert!(table.lines().any(|line| line.starts_with("requests ")));
    let text = stats(&["--prometheus"]).unwrap();
    assert!(text.contains("# TYPE ferrule_requests_total counter\n"));
    assert!(text.contains("ferrule_latency_seconds_bucket{guest="));
    program.end();
    assert!(stats(&[]).is_none() && !sockets.path("c").exists());
}

#[test]
fn it_tells_how_it_is_used() {
    let help = |option: &str| {
        let (status, text, log) = run(&[option.to_owned()]);
        assert_eq!((status, log.as_str()), (Some(0), ""));
        text
    };
    let (short, long) = (help("-h"), help("--help"));
    let options = ["guest", "link", "tap", "wire-only", "capture", "control"];
    for text in [&short, &long] {
        for option in options {
            assert!(text.contains(&format!("--{option}")), "{option}");
        }
        assert!(text.contains("vfio-user-pci"));
    }
    for part in ["Signals:", "Exit status:", "Examples:"] {
        assert!(long.contains(part) && !short.contains(part), "{part}");
    }
}
