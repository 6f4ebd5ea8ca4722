// SPDX-License-Identifier: GPL-2.0

//! Draws small files and looks for the parts that the picture must have.

use std::{
    fs,
    path::PathBuf,
    process::{
        Command,
        Output, //
    },
};

const HEAD: &str = "scenario,round,driver,measure,title,series,x,x_name,value,unit\n";

/// Draws `rows` below the head of the file; the name tells tests apart.
fn draw(name: &str, rows: &str, wanted: &[&str]) -> (Output, Option<String>) {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, target) = (
        directory.join(format!("{name}.csv")),
        directory.join(format!("{name}.svg")),
    );
    fs::write(&source, format!("{HEAD}{rows}")).unwrap();
    let _ = fs::remove_file(&target);
    let output = Command::new(env!("CARGO_BIN_EXE_plot"))
        .arg(&source)
        .arg(&target)
        .args(wanted)
        .output()
        .unwrap();
    (output, fs::read_to_string(&target).ok())
}

fn picture(name: &str, rows: &str, wanted: &[&str]) -> String {
    let (output, picture) = draw(name, rows, wanted);
    assert!(output.status.success(), "{output:?}");
    picture.unwrap()
}

const CURVES: &str = "\
s,1,ferrule,bw,\"Bandwidth, both\",,8,bytes,1.5,MiB/s
s,1,ferrule,bw,\"Bandwidth, both\",,65536,bytes,2000,MiB/s
s,2,ferrule,bw,\"Bandwidth, both\",,65536,bytes,2100,MiB/s
s,1,rxe,bw,\"Bandwidth, both\",,8,bytes,0.3,MiB/s
s,1,rxe,bw,\"Bandwidth, both\",,65536,bytes,140,MiB/s
";

const DOTS: &str = "\
s,1,ferrule,lat,Latency,,,,5.5,us
s,2,ferrule,lat,Latency,,,,6.5,us
s,1,rxe,lat,Latency,,,,72,us
s,1,guest,system_call,system call,,,,0.5,us
";

#[test]
fn curves_have_a_legend_and_axes() {
    let picture = picture("curves", CURVES, &[]);
    for text in ["Bandwidth, both", "ferrule", "rxe", "MiB/s", "bytes"] {
        assert!(picture.contains(text), "no {text}");
    }
    // A line for each driver.
    assert!(picture.matches("<polyline").count() >= 2);
    assert_eq!(picture.matches("<polygon").count(), 2);
}

#[test]
fn dots_have_the_median_of_each_driver() {
    let picture = picture("dots", DOTS, &[]);
    for text in ["Latency", "ferrule", "rxe", "\n6\n", "\n72\n"] {
        assert!(picture.contains(text), "no {text:?}");
    }
    assert_eq!(picture.matches("<circle").count(), 3);
    assert!(
        !picture.contains("system call"),
        "the guest's limits are no measure"
    );
}

#[test]
fn measures_can_be_chosen() {
    let picture = picture("chosen", &format!("{CURVES}{DOTS}"), &["lat", "absent"]);
    assert!(picture.contains("Latency"));
    assert!(!picture.contains("Bandwidth"));
}

#[test]
fn limits_are_drawn_if_they_are_asked_for() {
    assert!(picture("limits", DOTS, &["lat", "system_call"]).contains("system call"));
}

#[test]
fn parts_of_a_sum_are_left_to_the_table() {
    let rows = format!("{DOTS}s,1,ferrule,lat,Latency,a part,,,2,us\n");
    assert!(!picture("whole", &rows, &[]).contains("a part"));
}

#[test]
fn differences_below_zero_are_drawn() {
    let rows = CURVES.replace("0.3", "-0.3");
    assert!(picture("negative", &rows, &[]).contains("Bandwidth"));
}

#[test]
fn nothing_to_draw_is_an_error() {
    let (output, picture) = draw("nothing", "", &[]);
    assert!(!output.status.success());
    assert!(picture.is_none());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no figures to draw"));
}

#[test]
fn a_column_that_is_missing_is_named() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("columns.csv");
    fs::write(&path, "round,driver\n1,rxe\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_plot"))
        .arg(&path)
        .arg("/dev/null")
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no column measure"));
}
