//! Pages of metrics, and how they look when they are written again.

use health::exposition::{Format, Line, PageBounds, read};
use health::series::NAME;

/// Reads a page within bounds that `setup` chooses, and what was read once more.
pub fn check(page: &[u8], setup: u8) {
    let format = if setup & 1 == 0 { Format::Text } else { Format::OpenMetrics };
    let bounds = match setup & 2 {
        0 => PageBounds::default(),
        _ => PageBounds { samples_max: 3, labels_max: 2, series_len_max: 16 },
    };
    let lines = match read(page, format, bounds) {
        Ok(lines) => lines,
        Err(fault) => {
            let count = page.split(|octet| *octet == b'\n').count();
            assert!((1..=count).contains(&fault.line), "{fault} of {count} lines");
            return;
        }
    };
    assert!(lines.len() <= bounds.samples_max);
    for line in &lines {
        let len: usize = line.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(len <= bounds.series_len_max);
        assert!(line.labels.iter().count() <= bounds.labels_max + 1);
        assert!(line.labels.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()));
    }
    let text: String = lines.iter().map(written).collect();
    let again = read(text.as_bytes(), Format::Text, bounds).expect("what was written is read");
    assert_eq!(again.len(), lines.len());
    for (line, again) in lines.iter().zip(&again) {
        assert_eq!((&line.labels, line.at_millis), (&again.labels, again.at_millis));
        assert_eq!(line.value.to_bits(), again.value.to_bits());
    }
}

fn written(line: &Line) -> String {
    let escaped =
        |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = line.labels.iter().filter(|(name, _)| *name != NAME);
    let labels: Vec<_> =
        labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let at = line.at_millis.map_or(String::new(), |at| format!(" {at}"));
    format!("{}{{{}}} {:?}{at}\n", line.labels.name(), labels.join(","), line.value)
}
