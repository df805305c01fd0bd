//! How long it takes to make a table of owners, and how even it is:
//! `cargo run --release -p cluster --example table_time`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use cluster::{Member, Placement, SlotTable, Standing, View};

/// Owners of each slot.
const WIDTH: usize = 3;
/// The shortest of so many runs is shown: the others were disturbed.
const RUNS: usize = 9;

fn main() {
    println!("{:<14}{:>8}{:>10}{:>10}", "placement", "members", "millis", "max/avg");
    for placement in Placement::ALL {
        for members in [1, 2, 4, 8, 16, 32, 64, 256, 1024] {
            let view = View::new(1, (0..members).map(member).collect()).expect("names differ");
            let (table, time) = make(&view, placement);
            let (millis, imbalance) = (time.as_secs_f64() * 1e3, table.imbalance());
            println!("{placement:<14}{members:>8}{millis:>10.2}{imbalance:>10.3}");
        }
    }
}

/// The table, and the shortest time it took to make it.
fn make(view: &View, placement: Placement) -> (SlotTable, Duration) {
    let run = || {
        let started = Instant::now();
        let table = SlotTable::new(view, placement, WIDTH);
        (table, started.elapsed())
    };
    (0..RUNS).map(|_| run()).min_by_key(|(_, time)| *time).expect("at least one run")
}

fn member(number: usize) -> Member {
    Member {
        name: format!("node-{number:02}").into(),
        datacenter: "dc".into(),
        incarnation: 1,
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 7053)),
        listen: Vec::new(),
        cells: 1,
        standing: Standing::Serving,
    }
}
