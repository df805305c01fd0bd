//! Cells and what goes between them.

use std::time::Duration;

use cache::Effects;
use cache::cell::{Handover, Parcel};
use cache::peer::{FrameHead, Manner, Message};
use cache::upstream::Address;

use super::ask::number_of;
use super::{Happening, Origin, Way, World};
use crate::checkers::Event;
use crate::node::CellId;
use crate::queue::Micros;
use crate::sabotage::Sabotage;
use crate::service::Told;

impl World {
    /// The timer of a cell rings.
    pub(super) fn wake(&mut self, id: CellId, life: u64) {
        let now = self.now;
        let node = &mut self.nodes[id.node];
        if !node.is_up() || node.incarnation != life {
            return;
        }
        let moment = node.moment(now);
        let running = &mut node.cells[id.cell];
        if running.wakes_at.is_none_or(|at| at > now) {
            return;
        }
        running.wakes_at = None;
        running.cell.tick(moment, &mut self.effects);
        self.take_effects(id);
    }

    pub(super) fn deliver_frame(&mut self, from: CellId, to: CellId, octets: &[u8]) {
        let source = (self.nodes[from.node].address, from.cell as u8);
        let node = &mut self.nodes[to.node];
        // Nobody is there, or it came back with fewer cells.
        if to.cell >= node.cells.len() {
            return;
        }
        self.trace.note(self.now, format_args!("{to} hears {from}: {}", summary(octets)));
        self.trace.note_octets(octets);
        let moment = node.moment(self.now);
        let cell = &mut node.cells[to.cell].cell;
        let is_good = cell.take_frame(moment, source, octets, &mut self.effects);
        if !is_good {
            self.trace.note(self.now, format_args!("{to} finds the frame malformed"));
        }
        self.take_effects(to);
    }

    pub(super) fn deliver_handover(&mut self, to: CellId, octets: &[u8], waited: Micros) {
        let node = &mut self.nodes[to.node];
        if to.cell >= node.cells.len() {
            return;
        }
        let moment = node.moment(self.now);
        let waited = Duration::from_micros(waited);
        let kept = node.cells[to.cell].cell.take_handover(moment, waited, octets);
        self.trace.note(self.now, format_args!("{to} is handed over {kept:?} entries"));
        self.take_effects(to);
    }

    /// A cell is told of another view.
    pub(super) fn show_view(&mut self, id: CellId, life: u64, told: Told) {
        let node = &mut self.nodes[id.node];
        if !node.is_up() || node.incarnation != life || node.cells[id.cell].view >= told.number {
            return;
        }
        let moment = node.moment(self.now);
        let running = &mut node.cells[id.cell];
        running.view = told.number;
        let before = self.service.told_before().filter(|_| node.began_alone);
        if let Some(before) = before
            && before.routing.epoch().number > running.cell.routing().epoch().number
        {
            running.cell.set_routing(moment, before.routing);
        }
        running.cell.set_routing(moment, told.routing.clone());
        if node.began_alone
            && let Some(others) = self.service.without(&told, &node.name)
        {
            let before = self.service.told_before();
            let before = before.and_then(|before| self.service.without(&before, &node.name));
            running.cell.set_routing_without_us(moment, others, before);
        }
        // Who is a member is asked.
        let is_member = told.routing.index_of(&node.name).is_some();
        node.is_open |= is_member && !node.is_leaving;
        self.trace.note(self.now, format_args!("{id} is told of view {}", told.number));
        self.take_effects(id);
    }

    /// Does what a cell wants done, and sets its alarm.
    pub(super) fn take_effects(&mut self, id: CellId) {
        let mut effects = std::mem::take(&mut self.effects);
        self.perform(id, &effects);
        effects.clear();
        self.effects = effects;
        self.set_alarm(id);
    }

    fn perform(&mut self, id: CellId, effects: &Effects) {
        for reply in &effects.replies {
            self.reply(number_of(reply.asker), &effects.octets[reply.octets.clone()]);
        }
        effects.parcels.iter().for_each(|parcel| self.send(id, parcel, false));
        effects.bulky.iter().for_each(|parcel| self.send(id, parcel, true));
        effects.handovers.iter().for_each(|handover| self.hand_over(id, handover));
        for &port in &effects.worn_ports {
            self.nodes[id.node].cells[id.cell].ports[port as usize] += 1;
        }
        for datagram in &effects.datagrams {
            let use_ = self.nodes[id.node].cells[id.cell].ports[datagram.port as usize];
            let way = Way::Datagram { port: datagram.port, use_ };
            self.send_upstream(id, Address::Socket(datagram.to), way, &datagram.octets);
        }
        for stream in &effects.streams {
            let way = Way::Stream { token: stream.token };
            self.send_upstream(id, stream.to, way, &stream.octets);
        }
    }

    fn send_upstream(&mut self, id: CellId, to: Address, way: Way, octets: &[u8]) {
        let is_it = |server: &crate::upstream::Server| Address::Socket(server.address) == to;
        let server = self.upstream.servers.iter().position(is_it).expect("a server that is set");
        let life = self.nodes[id.node].incarnation;
        let from = Origin { cell: id, life, server, way };
        self.ask_upstream(from, octets);
    }

    fn send(&mut self, from: CellId, parcel: &Parcel, is_bulky: bool) {
        let Some(node) = self.nodes.iter().position(|node| node.address == parcel.to.address)
        else {
            return;
        };
        let to = CellId { node, cell: parcel.to.cell as usize };
        self.tally.frames += 1;
        let octets = &parcel.octets;
        self.trace.note(self.now, format_args!("{from} says to {to}: {}", summary(octets)));
        self.show(&Event::Framed { from, to, octets });
        if self.loses_handovers() && has_peek(octets) {
            return;
        }
        let arrivals = match is_bulky {
            true => [self.network.stream(self.now, from.node, to.node), None],
            false => self.network.carry(self.now, from.node, to.node, &mut self.chance),
        };
        for at in arrivals.into_iter().flatten() {
            self.queue.add(at, Happening::Frame { from, to, octets: octets.clone() });
        }
    }

    fn hand_over(&mut self, from: CellId, handover: &Handover) {
        let Some(node) = self.nodes.iter().position(|node| node.name == handover.to) else {
            return;
        };
        if self.loses_handovers() {
            return;
        }
        // Who leaves waits until all is handed over.
        let lag = match self.nodes[from.node].is_leaving {
            true => 0,
            false => self.chance.among(0..self.settings.handover_lag),
        };
        if let Some(at) = self.network.stream(self.now, from.node, node) {
            let to = CellId { node, cell: handover.cell as usize };
            let (octets, waited) = (handover.octets.clone(), lag);
            self.queue.add(at + lag, Happening::Handover { to, octets, waited });
        }
    }

    fn loses_handovers(&self) -> bool {
        self.sabotage == Some(Sabotage::LostHandover) && !self.is_healed
    }

    /// Sees to it that a cell is woken when it wants to be.
    fn set_alarm(&mut self, id: CellId) {
        let node = &mut self.nodes[id.node];
        let Some(running) = node.cells.get(id.cell) else { return };
        let Some(due) = running.cell.next_due() else { return };
        let at = node.micros(due).max(self.now);
        let running = &mut node.cells[id.cell];
        if running.wakes_at.is_none_or(|set| at < set) {
            running.wakes_at = Some(at);
            self.queue.add(at, Happening::Wake { cell: id, life: node.incarnation });
        }
    }
}

/// A frame for people.
fn summary(octets: &[u8]) -> String {
    let Some((_, messages)) = FrameHead::read(octets) else { return "no frame".to_owned() };
    let short = |message| match message {
        Ok(Message::Lookup { request, manner, .. }) => format!("{manner:?} {request:x}"),
        Ok(Message::Answer { request, is_stale, answer }) => {
            let stale = if is_stale { " stale" } else { "" };
            format!("Answer {request:x}{stale} ({} octets)", answer.len())
        }
        Ok(Message::Put { is_hot, answer }) => {
            format!("Put{} ({} octets)", if is_hot { " hot" } else { "" }, answer.len())
        }
        Ok(other) => format!("{other:x?}"),
        Err(_) => "malformed".to_owned(),
    };
    messages.map(short).collect::<Vec<_>>().join(", ")
}

/// True if a former owner is asked.
fn has_peek(octets: &[u8]) -> bool {
    let messages = FrameHead::read(octets).map(|(_, messages)| messages);
    let is_peek = |message| matches!(message, Ok(Message::Lookup { manner: Manner::Peek, .. }));
    messages.into_iter().flatten().any(is_peek)
}
