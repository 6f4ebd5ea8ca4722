// SPDX-License-Identifier: GPL-2.0

//! The figures, as the CSV file has them.

use std::{
    collections::HashMap,
    error::Error, //
};

/// All figures of one name.
pub(crate) struct Measure {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) x_name: String,
    pub(crate) lines: Vec<Line>,
}

/// The figures of one driver and series.
pub(crate) struct Line {
    pub(crate) driver: String,
    pub(crate) series: String,
    pub(crate) points: Vec<Point>,
}

/// The figures of all rounds in one place.
pub(crate) struct Point {
    pub(crate) x: Option<f64>,
    pub(crate) values: Vec<f64>,
}

impl Measure {
    pub(crate) fn is_curve(&self) -> bool {
        self.points().all(|point| point.x.is_some())
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = &Point> {
        self.lines.iter().flat_map(|line| &line.points)
    }

    /// All values of all points.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.lines.iter().flat_map(Line::values)
    }
}

impl Line {
    /// All values of all points.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.points
            .iter()
            .flat_map(|point| point.values.iter().copied())
    }

    /// Its name in the legend.
    pub(crate) fn name(&self) -> String {
        if self.series.is_empty() {
            self.driver.clone()
        } else {
            format!("{}, {}", self.driver, self.series)
        }
    }
}

impl Point {
    pub(crate) fn least(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn most(&self) -> f64 {
        self.values
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max)
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 0 {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        } else {
            sorted[middle]
        }
    }
}

/// The guest's own limits stand in the same file, but are no measure of a driver: they are drawn if
/// they are asked for.
const NO_DRIVER: &str = "guest";

/// Reads the measures of a file, all or those that are `wanted`, in that order.
pub(crate) fn read(path: &str, wanted: &[String]) -> Result<Vec<Measure>, Box<dyn Error>> {
    let mut file = csv::Reader::from_path(path).map_err(|error| format!("{path}: {error}"))?;
    let mut names: Vec<String> = wanted.to_vec();
    let mut measures: HashMap<String, Measure> = HashMap::new();
    for row in file.deserialize() {
        let row: HashMap<String, String> = row?;
        let cell = |name: &str| {
            row.get(name)
                .cloned()
                .ok_or_else(|| format!("{path} has no column {name}"))
        };
        let (name, driver) = (cell("measure")?, cell("driver")?);
        let is_drawn = if wanted.is_empty() {
            driver != NO_DRIVER
        } else {
            wanted.contains(&name)
        };
        if !is_drawn {
            continue;
        }
        if !names.contains(&name) {
            names.push(name.clone());
        }
        let measure = measures.entry(name).or_insert(Measure {
            title: cell("title")?,
            unit: cell("unit")?,
            x_name: cell("x_name")?,
            lines: Vec::new(),
        });
        let x = match cell("x")?.as_str() {
            "" => None,
            number => Some(number.parse()?),
        };
        measure.add(driver, cell("series")?, x, cell("value")?.parse()?);
    }
    Ok(names
        .iter()
        .filter_map(|name| measures.remove(name))
        .collect())
}

impl Measure {
    fn add(&mut self, driver: String, series: String, x: Option<f64>, value: f64) {
        let line = match self
            .lines
            .iter()
            .position(|line| line.driver == driver && line.series == series)
        {
            Some(place) => &mut self.lines[place],
            None => {
                self.lines.push(Line {
                    driver,
                    series,
                    points: Vec::new(),
                });
                let last = self.lines.len() - 1;
                &mut self.lines[last]
            }
        };
        match line.points.iter_mut().find(|point| point.x == x) {
            Some(point) => point.values.push(value),
            None => line.points.push(Point {
                x,
                values: vec![value],
            }),
        }
        line.points
            .sort_by(|a, b| a.x.unwrap_or(0.0).total_cmp(&b.x.unwrap_or(0.0)));
    }
}
