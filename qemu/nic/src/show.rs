// SPDX-License-Identifier: GPL-2.0

//! The table that `ferrule-nic stats` makes of what a process tells.

use std::collections::BTreeMap;

/// The values of a process, by their names; each by guests.
pub type Values = BTreeMap<String, BTreeMap<String, f64>>;

/// The values in a text of Prometheus' format. Lines of another form are left out.
pub fn parse(text: &str) -> Values {
    let mut values = Values::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, guest, value)) = line_of(line) {
            values.entry(name).or_default().insert(guest, value);
        }
    }
    values
}

fn line_of(line: &str) -> Option<(String, String, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once("{guest=\"")?;
    let name = name.strip_prefix("ferrule_")?;
    // The text behind a guest's name is a label of ours, which has no quotes inside.
    let (guest, rest) = match labels.split_once("\",") {
        Some((guest, rest)) => (guest, rest.strip_suffix("\"}")?),
        None => (labels.strip_suffix("\"}")?, ""),
    };
    let name = match rest.split_once("=\"") {
        Some((_, label)) => format!("{name} {label}"),
        None => name.to_owned(),
    };
    Some((name, guest.to_owned(), value.parse().ok()?))
}

/// A table with a column for each guest. With the values of so many seconds before: the difference
/// since then, by the second.
pub fn table(now: &Values, before: Option<(&Values, f64)>) -> String {
    let guests: Vec<&String> = now
        .get("connected")
        .into_iter()
        .flat_map(BTreeMap::keys)
        .collect();
    let mut rows = vec![vec![String::new()]];
    if let Some(head) = rows.first_mut() {
        head.extend(guests.iter().map(|guest| (*guest).clone()));
    }
    for (name, values) in now
        .iter()
        .filter(|(name, _)| !name.starts_with("latency_seconds"))
    {
        let rate = name.strip_suffix("_total").zip(before);
        let mut row = vec![match rate {
            Some((short, _)) => format!("{short}/s"),
            None => name
                .trim_end_matches("_total")
                .replace("objects ", "objects: "),
        }];
        row.extend(guests.iter().map(|guest| {
            let value = values.get(*guest).copied().unwrap_or(0.0);
            let was = |(_, (old, seconds)): (&str, (&Values, f64))| {
                let old = old.get(name).and_then(|old| old.get(*guest)).copied();
                (value - old.unwrap_or(0.0)) / seconds
            };
            format!("{:.0}", rate.map_or(value, was))
        }));
        rows.push(row);
    }
    for share in [0.5, 0.99] {
        let mut row = vec![format!("latency, {:.0} % below", share * 100.0)];
        row.extend(guests.iter().map(|guest| quantile(now, guest, share)));
        rows.push(row);
    }
    aligned(&rows)
}

/// The least bound that so large a share of latencies keeps.
fn quantile(values: &Values, guest: &str, share: f64) -> String {
    let mut bounds: Vec<(f64, f64)> = values
        .iter()
        .filter_map(|(name, values)| {
            let bound = name.strip_prefix("latency_seconds_bucket ")?.parse().ok()?;
            Some((bound, *values.get(guest)?))
        })
        .collect();
    bounds.sort_by(|one, two| one.0.total_cmp(&two.0));
    let total = bounds.last().map_or(0.0, |last| last.1);
    let found = bounds.iter().find(|(_, count)| *count >= total * share);
    match found {
        Some((bound, _)) if total > 0.0 && bound.is_finite() => format!("{:.1} us", bound * 1e6),
        Some(_) if total > 0.0 => "2 s and more".to_owned(),
        _ => "-".to_owned(),
    }
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            match column {
                0 => text.push_str(&format!("{cell:<width$}")),
                _ => text.push_str(&format!("  {cell:>width$}")),
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE ferrule_requests_total counter
ferrule_requests_total{guest=\"a, b\"} 30
ferrule_connected{guest=\"a, b\"} 1
ferrule_objects{guest=\"a, b\",kind=\"qp\"} 2
ferrule_latency_seconds_bucket{guest=\"a, b\",le=\"0.000001\"} 5
ferrule_latency_seconds_bucket{guest=\"a, b\",le=\"0.000002\"} 9
ferrule_latency_seconds_bucket{guest=\"a, b\",le=\"+Inf\"} 10
what is this
";

    #[test]
    fn a_table() {
        let values = parse(TEXT);
        let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let now = lines(table(&values, None));
        assert_eq!(now.len(), 6);
        assert!(now[0].ends_with("a, b") && now[3].starts_with("requests "));
        assert!(now[2].starts_with("objects: qp") && now[2].ends_with(" 2"));
        assert!(now[4].ends_with("1.0 us") && now[5].ends_with("2 s and more"));
        let before = parse("ferrule_requests_total{guest=\"a, b\"} 10\n");
        let rates = lines(table(&values, Some((&before, 2.0))));
        assert!(rates[3].starts_with("requests/s") && rates[3].ends_with(" 10"));
    }
}
