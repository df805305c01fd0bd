//! Upstream servers and who forges their answers.

use std::net::SocketAddr;

use super::{Happening, Origin, Way, World};
use crate::checkers::Event;
use crate::inquiry::Wish;
use crate::names::text_form;
use crate::node::PORTS;
use crate::sabotage::Sabotage;
use crate::settings::{MILLI, SECOND};
use crate::upstream::{Flaw, Heard};

/// Upstream questions whose answers somebody tries to forge.
const FORGED_PER_MILLE: u32 = 200;
/// Guesses for one question.
const GUESSES: std::ops::Range<u64> = 1..7;
/// Over a connection a question takes longer: it has to be made first.
const STREAM_TRIPS: u64 = 2;
/// When a connection to a server that says nothing is given up.
const STREAM_PATIENCE: u64 = 2 * SECOND;
/// Where forgers send from if they cannot send from the server's address.
const ELSEWHERE: [u8; 4] = [203, 0, 113, 66];

impl World {
    /// A cell asks an upstream server.
    pub(super) fn ask_upstream(&mut self, from: Origin, octets: &[u8]) {
        let heard = Heard::read(octets).expect("cells ask well-formed questions");
        let over_stream = matches!(from.way, Way::Stream { .. });
        self.tally.consulted += 1;
        self.trace.note(
            self.now,
            format_args!(
                "{} asks server {} for {} type {} bits {}{}",
                from.cell,
                from.server,
                text_form(&heard.name),
                heard.qtype,
                heard.bits.octet(),
                if over_stream { " over a connection" } else { "" },
            ),
        );
        self.trace.note_octets(octets);
        let event = Event::Consulted { cell: from.cell, heard: &heard, over_stream };
        self.show(&event);
        let is_kept = self.names.find(&heard.name).is_some_and(|name| name.behaviour.is_kept());
        if !over_stream && is_kept && self.sabotages(Sabotage::DoubledQuestion) {
            self.show(&event);
        }
        let is_aimed = self.settings.has_forger && self.chance.happens(FORGED_PER_MILLE);
        if !over_stream && is_aimed {
            self.forge(from, &heard);
        }
        if !over_stream && self.sabotages(Sabotage::PerfectForgery) {
            self.send_forgery(from, &heard, Flaw::None, self.now + 1);
        }
        let mut way = self.way_there(from);
        if self.chance.happens(self.upstream.weather.slow_per_mille) {
            way += SECOND;
        }
        if !over_stream && self.chance.happens(self.upstream.weather.loss_per_mille) {
            return;
        }
        self.queue.add(self.now + way, Happening::Question { from, octets: octets.to_vec() });
    }

    /// Half the time that a server takes.
    fn way_there(&mut self, from: Origin) -> u64 {
        let latency = self.upstream.servers[from.server].latency_us.clone();
        let trips = if matches!(from.way, Way::Stream { .. }) { STREAM_TRIPS } else { 1 };
        self.chance.among(latency) * trips / 2
    }

    /// A server hears a question.
    pub(super) fn consult(&mut self, from: Origin, octets: &[u8]) {
        let heard = Heard::read(octets).expect("it was read before");
        let over_stream = matches!(from.way, Way::Stream { .. });
        let source = self.upstream.servers[from.server].address;
        let saying = self.upstream.answer(self.now, from.server, &heard, over_stream, &self.names);
        let Some(saying) = saying else {
            if over_stream {
                let at = self.now + STREAM_PATIENCE;
                self.queue.add(at, Happening::Saying { to: from, source, octets: None });
            }
            return;
        };
        if let Some(said) = &saying.said {
            self.show(&Event::Said(said));
        }
        let at = self.now + self.way_there(from);
        if over_stream || !self.chance.happens(self.upstream.weather.loss_per_mille) {
            let octets = Some(saying.octets);
            self.queue.add(at, Happening::Saying { to: from, source, octets });
        }
    }

    /// Somebody guesses.
    fn forge(&mut self, from: Origin, heard: &Heard) {
        for _ in 0..self.chance.among(GUESSES) {
            let flaw = self.chance.pick(&Flaw::ALL);
            let at = self.now + self.chance.among(0..4 * MILLI);
            self.send_forgery(from, heard, flaw, at);
        }
        let name = (0..self.names.len()).find(|at| self.names.get(*at).octets == heard.name);
        if let Some(name) = name {
            self.aims.push((from.cell, Wish { name, qtype: heard.qtype, bits: heard.bits }));
        }
    }

    fn send_forgery(&mut self, mut to: Origin, heard: &Heard, flaw: Flaw, at: u64) {
        self.tally.forged += 1;
        let saying = self.upstream.forge(self.now, heard, flaw, &mut self.chance);
        self.trace.note(self.now, format_args!("a forgery for {} with a wrong {flaw:?}", to.cell));
        if let Some(said) = &saying.said {
            self.show(&Event::Said(said));
        }
        let mut source = self.upstream.servers[to.server].address;
        match (flaw, &mut to.way) {
            (Flaw::Source, _) => source = SocketAddr::from((ELSEWHERE, 53)),
            (Flaw::Port, Way::Datagram { port, .. }) => *port = (*port + 1) % PORTS,
            _ => {}
        }
        self.queue.add(at, Happening::Saying { to, source, octets: Some(saying.octets) });
    }

    /// An answer comes to the cell that asked.
    pub(super) fn tell(&mut self, to: Origin, source: SocketAddr, octets: Option<&[u8]>) {
        let node = &mut self.nodes[to.cell.node];
        if !node.is_up() || node.incarnation != to.life {
            return;
        }
        let moment = node.moment(self.now);
        let running = &mut node.cells[to.cell.cell];
        let cell = &mut running.cell;
        match (to.way, octets) {
            (Way::Datagram { port, use_ }, Some(octets)) => {
                // The socket was closed meanwhile.
                if running.ports[port as usize] != use_ {
                    return;
                }
                cell.take_datagram(moment, source, port, octets, &mut self.effects);
            }
            (Way::Datagram { .. }, None) => return,
            (Way::Stream { token }, octets) => {
                cell.take_stream(moment, token, octets, &mut self.effects);
            }
        }
        let len = octets.map(<[u8]>::len);
        self.trace.note(self.now, format_args!("{} hears {source}: {len:?} octets", to.cell));
        self.trace.note_octets(octets.unwrap_or_default());
        self.take_effects(to.cell);
    }
}
