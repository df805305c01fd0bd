//! A node: its cells, its clock, and what of it outlives a crash.

use std::net::SocketAddr;
use std::sync::Arc;

use cache::{Cell, Config, Counts, Moment};
use cluster::{Member, Standing};

use crate::queue::Micros;
use crate::service::Told;
use crate::settings::{START, Settings};

/// Sockets of a cell that questions go upstream from.
pub const PORTS: u16 = 8;

/// One cell of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellId {
    pub node: usize,
    pub cell: usize,
}

impl std::fmt::Display for CellId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.node, self.cell)
    }
}

/// A cell with what its thread would know.
#[derive(Debug)]
pub struct Running {
    pub cell: Cell,
    /// The number of the last view it was told.
    pub view: u64,
    /// When it is going to be woken.
    pub wakes_at: Option<Micros>,
    /// How often each upstream socket was replaced.
    pub ports: [u32; PORTS as usize],
}

#[derive(Debug)]
pub struct Node {
    pub name: Arc<str>,
    pub address: SocketAddr,
    pub count: u8,
    /// Which of its lives this is.
    pub incarnation: u64,
    /// Its clock is ahead of the world's by this: nodes do not share one.
    pub ahead: Micros,
    /// How many times slower than the world's it is; 1 if it is right.
    pub slowness: u64,
    /// Nothing while it is down.
    pub cells: Vec<Running>,
    /// Clients may ask it.
    pub is_open: bool,
    /// It is on its way out.
    pub is_leaving: bool,
    /// It started without knowing of the others.
    pub began_alone: bool,
}

impl Node {
    /// The `at`th node, down.
    pub fn new(at: usize, settings: &Settings) -> Self {
        Node {
            name: format!("node-{at}").into(),
            address: SocketAddr::from(([10, 0, 0, at as u8 + 1], 7053)),
            count: settings.cells[at],
            incarnation: 0,
            ahead: 0,
            slowness: 1,
            cells: Vec::new(),
            is_open: false,
            is_leaving: false,
            began_alone: false,
        }
    }

    pub fn is_up(&self) -> bool {
        !self.cells.is_empty()
    }

    pub fn member(&self) -> Member {
        Member {
            name: self.name.clone(),
            datacenter: "lab".into(),
            incarnation: self.incarnation,
            peer: self.address,
            listen: Vec::new(),
            cells: self.count,
            standing: Standing::Serving,
        }
    }

    /// Starts its cells, which go by what was told first.
    pub fn start(&mut self, told: &Told, config: &Config, mut seed: impl FnMut() -> [u8; 32]) {
        self.is_leaving = false;
        self.cells = (0..self.count)
            .map(|cell| {
                let config = Config {
                    name: self.name.clone(),
                    cell,
                    cells: self.count,
                    seed: seed(),
                    ..config.clone()
                };
                Running {
                    cell: Cell::new(config, told.routing.clone(), Arc::new(Counts::default())),
                    view: told.number,
                    wakes_at: None,
                    ports: [0; PORTS as usize],
                }
            })
            .collect();
    }

    /// Everything it had in memory is gone.
    pub fn stop(&mut self) {
        self.cells.clear();
        self.is_open = false;
    }

    /// What its clock says.
    pub fn moment(&self, now: Micros) -> Moment {
        Moment(START + self.ahead + (now - START) / self.slowness)
    }

    /// The world's time of one of its moments.
    pub fn micros(&self, moment: Moment) -> Micros {
        START + moment.0.saturating_sub(START + self.ahead) * self.slowness
    }
}
