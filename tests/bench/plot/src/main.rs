// SPDX-License-Identifier: GPL-2.0

//! Draws the figures of `make bench` and `make study` into an SVG picture.
//!
//! usage: plot FIGURES.csv PICTURE.svg [MEASURE...]
//!
//! Each measure has a panel of its own, in the order of the file or of the command line. Figures
//! with an x are curves over it, of medians between the least and the most; the others are dots, a
//! column for each driver and series, with a bar at the median.

mod figures;
mod panel;

use std::{
    env,
    error::Error,
    process::ExitCode, //
};

use plotters::prelude::*;

use crate::figures::Measure;

const PANEL: (u32, u32) = (440, 320);
const MOST_COLUMNS: usize = 4;

fn draw(path: &str, measures: &[Measure]) -> Result<(), Box<dyn Error>> {
    let columns = measures.len().min(MOST_COLUMNS);
    let rows = measures.len().div_ceil(columns);
    let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
    let picture = SVGBackend::new(path, size).into_drawing_area();
    picture.fill(&WHITE)?;
    for (area, measure) in picture.split_evenly((rows, columns)).iter().zip(measures) {
        if measure.is_curve() {
            panel::curves(area, measure)?;
        } else {
            panel::dots(area, measure)?;
        }
    }
    picture.present()?;
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [source, target, wanted @ ..] = words.as_slice() else {
        return Err("usage: plot FIGURES.csv PICTURE.svg [MEASURE...]".into());
    };
    let measures = figures::read(source, wanted)?;
    if measures.is_empty() {
        return Err(format!("{source} has no figures to draw").into());
    }
    draw(target, &measures)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plot: {error}");
            ExitCode::FAILURE
        }
    }
}
