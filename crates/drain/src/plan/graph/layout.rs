//! Where boxes and arrows of the picture go.
//!
//! Waves are columns. An arrow that passes a column takes a narrow place in it,
//! so that it goes between boxes and not through them. Within a column places
//! are put near what they are connected to, which leaves few crossings.

use super::super::{Foresight, TaskId};
use super::Arrow;

pub(super) const BOX_HEIGHT: f64 = 42.0;
pub(super) const COLUMN_GAP: f64 = 76.0;
const BOX_GAP: f64 = 14.0;
const LANE_HEIGHT: f64 = 14.0;
/// Passes over all columns, there and back. More change little.
const SWEEPS: usize = 8;

/// One place in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Box(TaskId),
    /// Where an arrow passes, by its index.
    Lane(usize),
}

#[derive(Debug)]
pub(super) struct Layout {
    /// For each task: its column, and the middle of its box.
    pub boxes: Vec<(usize, f64)>,
    /// For each arrow: columns that it passes, and where.
    pub lanes: Vec<Vec<(usize, f64)>>,
    pub columns: usize,
    pub height: f64,
}

pub(super) fn layout(foresight: &Foresight, arrows: &[Arrow]) -> Layout {
    let wave = |id: TaskId| foresight.tasks[id.index()].wave as usize;
    let mut columns: Vec<Vec<Place>> =
        foresight.waves.iter().map(|wave| wave.iter().copied().map(Place::Box).collect()).collect();
    for (at, arrow) in arrows.iter().enumerate() {
        for column in &mut columns[wave(arrow.from) + 1..wave(arrow.to)] {
            column.push(Place::Lane(at));
        }
    }
    let mut middles = Middles::new(foresight, arrows);
    let links = Links::new(foresight, arrows);
    stack(&columns, &mut middles);
    for sweep in 0..SWEEPS {
        let there = sweep % 2 == 0;
        let order: Vec<usize> = match there {
            true => (1..columns.len()).collect(),
            false => (0..columns.len().saturating_sub(1)).rev().collect(),
        };
        for column in order {
            let beside = if there { column - 1 } else { column + 1 };
            let mut keyed: Vec<(f64, Place)> = columns[column]
                .iter()
                .map(|place| (links.wanted(*place, column, beside, &middles), *place))
                .collect();
            keyed.sort_by(|(first, _), (second, _)| first.total_cmp(second));
            columns[column] = keyed.into_iter().map(|(_, place)| place).collect();
            stack_column(column, &columns[column], &mut middles);
        }
    }
    let height = columns.iter().map(|column| height_of(column)).fold(BOX_HEIGHT, f64::max);
    centre(&columns, height, &mut middles);
    let lanes = (middles.lanes.iter().zip(&middles.first_lanes))
        .map(|(lanes, first)| (*first..).zip(lanes.iter().copied()).collect())
        .collect();
    let boxes =
        (0..foresight.tasks.len()).map(|at| (wave(TaskId(at as u32)), middles.boxes[at])).collect();
    Layout { boxes, lanes, columns: columns.len(), height }
}

/// The middles of all places so far.
struct Middles {
    boxes: Vec<f64>,
    /// For each arrow and each column that it passes.
    lanes: Vec<Vec<f64>>,
    /// The first column that it passes.
    first_lanes: Vec<usize>,
}

impl Middles {
    fn new(foresight: &Foresight, arrows: &[Arrow]) -> Self {
        let wave = |id: TaskId| foresight.tasks[id.index()].wave as usize;
        let first_lanes: Vec<_> = arrows.iter().map(|arrow| wave(arrow.from) + 1).collect();
        let lanes = arrows.iter().zip(&first_lanes);
        Middles {
            boxes: vec![0.0; foresight.tasks.len()],
            lanes: lanes.map(|(arrow, first)| vec![0.0; wave(arrow.to) - first]).collect(),
            first_lanes,
        }
    }

    fn get(&self, place: Place, column: usize) -> f64 {
        match place {
            Place::Box(id) => self.boxes[id.index()],
            Place::Lane(at) => self.lanes[at][column - self.first_lanes[at]],
        }
    }

    fn set(&mut self, place: Place, column: usize, middle: f64) {
        match place {
            Place::Box(id) => self.boxes[id.index()] = middle,
            Place::Lane(at) => self.lanes[at][column - self.first_lanes[at]] = middle,
        }
    }
}

/// What is connected to what.
struct Links<'a> {
    foresight: &'a Foresight,
    arrows: &'a [Arrow],
    /// For each task, the arrows that lead to it and from it.
    into: Vec<Vec<usize>>,
    out_of: Vec<Vec<usize>>,
}

impl<'a> Links<'a> {
    fn new(foresight: &'a Foresight, arrows: &'a [Arrow]) -> Self {
        let mut into = vec![Vec::new(); foresight.tasks.len()];
        let mut out_of = into.clone();
        for (at, arrow) in arrows.iter().enumerate() {
            into[arrow.to.index()].push(at);
            out_of[arrow.from.index()].push(at);
        }
        Links { foresight, arrows, into, out_of }
    }

    /// The mean of what a place is connected to in the column beside it; where
    /// it is already if there is nothing.
    fn wanted(&self, place: Place, column: usize, beside: usize, middles: &Middles) -> f64 {
        let end_of = |at: &usize| {
            let end = match beside < column {
                true => self.arrows[*at].from,
                false => self.arrows[*at].to,
            };
            let wave = self.foresight.tasks[end.index()].wave as usize;
            let end = if wave == beside { Place::Box(end) } else { Place::Lane(*at) };
            middles.get(end, beside)
        };
        let ends: Vec<f64> = match place {
            Place::Lane(at) => vec![end_of(&at)],
            Place::Box(id) if beside < column => self.into[id.index()].iter().map(end_of).collect(),
            Place::Box(id) => self.out_of[id.index()].iter().map(end_of).collect(),
        };
        match ends.len() {
            0 => middles.get(place, column),
            count => ends.iter().sum::<f64>() / count as f64,
        }
    }
}

fn size(place: Place) -> f64 {
    match place {
        Place::Box(_) => BOX_HEIGHT + BOX_GAP,
        Place::Lane(_) => LANE_HEIGHT,
    }
}

fn height_of(column: &[Place]) -> f64 {
    column.iter().copied().map(size).sum()
}

fn stack(columns: &[Vec<Place>], middles: &mut Middles) {
    for (at, column) in columns.iter().enumerate() {
        stack_column(at, column, middles);
    }
}

/// Puts places below each other, around zero.
fn stack_column(at: usize, column: &[Place], middles: &mut Middles) {
    let mut top = -height_of(column) / 2.0;
    for place in column {
        middles.set(*place, at, top + size(*place) / 2.0);
        top += size(*place);
    }
}

fn centre(columns: &[Vec<Place>], height: f64, middles: &mut Middles) {
    for (at, column) in columns.iter().enumerate() {
        for place in column {
            let middle = middles.get(*place, at);
            middles.set(*place, at, middle + height / 2.0);
        }
    }
}
