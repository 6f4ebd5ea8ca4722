// SPDX-License-Identifier: GPL-2.0

//! One panel of a picture.

use std::error::Error;

use plotters::{
    coord::{
        ranged1d::{
            AsRangedCoord,
            ValueFormatter, //
        },
        Shift, //
    },
    element::{
        DynElement,
        IntoDynElement, //
    },
    prelude::*,
    style::text_anchor::{
        HPos,
        Pos,
        VPos, //
    },
};

use crate::figures::{
    Line,
    Measure, //
};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

const TITLE: (&str, u32) = ("sans-serif", 15);
const LABEL: (&str, u32) = ("sans-serif", 11);
const MARGIN: u32 = 10;
// The last label of an axis is centred on its end.
const RIGHT: u32 = 26;
const X_LABELS: u32 = 36;
const Y_LABELS: u32 = 62;

/// The place of a line among its driver's series.
fn place(line: &Line, among: &[Line]) -> usize {
    among
        .iter()
        .filter(|other| other.driver == line.driver)
        .position(|other| other.series == line.series)
        .unwrap_or(0)
}

/// A driver's colour; its further series are lighter.
fn colour(driver: &str, place: usize) -> RGBColor {
    const KNOWN: [(&str, (u8, u8, u8)); 4] = [
        ("ferrule", (181, 72, 42)),
        ("rxe", (74, 106, 138)),
        ("ferrule-rxe", (150, 82, 118)),
        ("rxe-ferrule", (112, 92, 160)),
    ];
    let (red, green, blue) = KNOWN
        .iter()
        .find(|(name, _)| *name == driver)
        .map_or((90, 90, 90), |(_, colour)| *colour);
    // Three lighter shades at most can be told apart.
    let light = (place.min(3) as f64) * 0.22;
    let mix = |part: u8| (f64::from(part) + (255.0 - f64::from(part)) * light) as u8;
    RGBColor(mix(red), mix(green), mix(blue))
}

/// Numbers as a person writes them: 4096 bytes are 4 KiB.
fn in_words(number: f64, name: &str) -> String {
    if name == "bytes" && number >= 1024.0 {
        for (unit, size) in [("MiB", 1048576.0), ("KiB", 1024.0)] {
            if number >= size {
                return format!("{} {unit}", (number / size * 10.0).round() / 10.0);
            }
        }
    }
    match number.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{number:.0}"),
        size if size >= 1.0 => format!("{}", (number * 10.0).round() / 10.0),
        _ => format!("{}", (number * 1000.0).round() / 1000.0),
    }
}

fn range(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    numbers.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), number| (least.min(number), most.max(number)),
    )
}

/// Draws curves over x, which is logarithmic; so is y where the figures span more than a decade.
pub(crate) fn curves(area: &Area<'_>, measure: &Measure) -> Drawn {
    let (least, most) = range(measure.values().filter(|value| *value > 0.0));
    if !least.is_finite() {
        return Err(format!("{}: nothing above 0 to draw", measure.title).into());
    }
    // Above the curves there is space for the legend.
    let legend = measure.lines.len() as f64;
    if most / least > 10.0 {
        let gap = (most / least).powf(0.08 + 0.08 * legend);
        curves_on(area, measure, (least / 1.5..most * gap).log_scale(), least)
    } else {
        curves_on(area, measure, 0.0..most * (1.1 + 0.08 * legend), 0.0)
    }
}

fn curves_on<Y>(area: &Area<'_>, measure: &Measure, y: Y, bottom: f64) -> Drawn
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let (left, right) = range(measure.points().filter_map(|point| point.x));
    if left <= 0.0 || !left.is_finite() {
        return Err(format!("{}: an x is not above 0", measure.title).into());
    }
    let mut chart = ChartBuilder::on(area)
        .caption(&measure.title, TITLE)
        .margin(MARGIN)
        .margin_right(RIGHT)
        .x_label_area_size(X_LABELS)
        .y_label_area_size(Y_LABELS)
        .build_cartesian_2d((left..right.max(left * 2.0)).log_scale().base(2.0), y)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style(LABEL)
        .x_labels(8)
        .y_labels(8)
        .x_desc(&measure.x_name)
        .y_desc(&measure.unit)
        .x_label_formatter(&|x| in_words(*x, &measure.x_name))
        .y_label_formatter(&|y| in_words(*y, ""))
        .draw()?;
    for line in &measure.lines {
        let place = place(line, &measure.lines);
        let colour = colour(&line.driver, place);
        let points: Vec<_> = line
            .points
            .iter()
            .filter_map(|point| Some((point.x?, point)))
            .collect();
        // A figure below 0 is drawn at the bottom: differences may be below 0.
        let lows = points
            .iter()
            .map(|(x, point)| (*x, point.least().max(bottom)));
        let highs = points
            .iter()
            .map(|(x, point)| (*x, point.most().max(bottom)));
        let band: Vec<_> = lows.chain(highs.rev()).collect();
        chart.draw_series([Polygon::new(band, colour.mix(0.15))])?;
        let medians = points
            .iter()
            .map(|(x, point)| (*x, point.median().max(bottom)));
        chart
            .draw_series(LineSeries::new(medians.clone(), colour.stroke_width(2)))?
            .label(line.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
        chart.draw_series(medians.map(|at| marker(at, place, colour)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(LABEL)
        .draw()?;
    Ok(())
}

/// A mark at a point; each of a driver's series has another.
fn marker<'a>(
    at: (f64, f64),
    place: usize,
    colour: RGBColor,
) -> DynElement<'static, SVGBackend<'a>, (f64, f64)> {
    match place {
        0 => Circle::new(at, 3, colour.filled()).into_dyn(),
        1 => Circle::new(at, 4, colour).into_dyn(),
        2 => TriangleMarker::new(at, 5, colour.filled()).into_dyn(),
        _ => Cross::new(at, 4, colour).into_dyn(),
    }
}

/// Draws each figure as a dot, a column for each driver and series, and bars at the medians.
pub(crate) fn dots(area: &Area<'_>, measure: &Measure) -> Drawn {
    // Where there is a figure for the whole, its parts are for the table.
    let whole = measure.lines.iter().any(|line| line.series.is_empty());
    let lines: Vec<&Line> = measure
        .lines
        .iter()
        .filter(|line| !whole || line.series.is_empty())
        .collect();
    let columns = lines.len() as f64;
    let (least, most) = range(lines.iter().flat_map(|line| line.values()));
    let top = if most > 0.0 { most * 1.15 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(&measure.title, TITLE)
        .margin(MARGIN)
        .margin_right(RIGHT)
        .x_label_area_size(X_LABELS)
        .y_label_area_size(Y_LABELS)
        .build_cartesian_2d(0.0..columns, least.min(0.0)..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .label_style(LABEL)
        .x_labels(0)
        .y_labels(6)
        .y_desc(&measure.unit)
        .y_label_formatter(&|y| in_words(*y, ""))
        .draw()?;
    let below = LABEL
        .into_text_style(area)
        .pos(Pos::new(HPos::Center, VPos::Top));
    let above = LABEL
        .into_text_style(area)
        .pos(Pos::new(HPos::Center, VPos::Bottom));
    for (number, line) in lines.into_iter().enumerate() {
        let colour = colour(&line.driver, place(line, &measure.lines));
        let middle = number as f64 + 0.5;
        for point in &line.points {
            chart.draw_series(
                point
                    .values
                    .iter()
                    .map(|value| Circle::new((middle, *value), 4, colour.mix(0.5).filled())),
            )?;
            let median = point.median();
            chart.draw_series(LineSeries::new(
                [(middle - 0.3, median), (middle + 0.3, median)],
                colour.stroke_width(3),
            ))?;
            let (x, y) = chart.backend_coord(&(middle, point.most()));
            let at = area_point(area, (x, y - 6));
            area.draw(&Text::new(in_words(median, ""), at, above.clone()))?;
        }
        let (x, y) = chart.backend_coord(&(middle, least.min(0.0)));
        for (row, word) in [line.driver.as_str(), line.series.as_str()]
            .into_iter()
            .enumerate()
        {
            let at = area_point(area, (x, y + 4 + 13 * row as i32));
            area.draw(&Text::new(word, at, below.clone()))?;
        }
    }
    Ok(())
}

/// A point of the picture as the area counts it.
fn area_point(area: &Area<'_>, point: (i32, i32)) -> (i32, i32) {
    let (left, top) = area.get_base_pixel();
    (point.0 - left, point.1 - top)
}
