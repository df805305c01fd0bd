//! What happens to nodes, network, upstream servers and the coordination
//! service.

use cluster::HashKey;

use super::{Happening, Phase, World};
use crate::checkers::Event;
use crate::node::{CellId, Node};
use crate::plan::{self, Change};
use crate::sabotage::Sabotage;
use crate::settings::{Kind, MILLI, SECOND};
use crate::upstream::Weather;

impl World {
    /// Lets a change happen, if it can.
    pub(super) fn change(&mut self, change: Change) {
        let is_stage = matches!(
            change,
            Change::Heal | Change::Rest | Change::Calm | Change::Hush | Change::End
        );
        if self.is_healed && !is_stage {
            return;
        }
        let life = match change {
            Change::Drain(node) | Change::Crash(node) | Change::Flap(node) => {
                self.nodes[node].incarnation
            }
            _ => 0,
        };
        if !self.try_change(&change) {
            return;
        }
        self.tally.changes += 1;
        self.trace.note(self.now, format_args!("--- {change:?}"));
        for (at, change) in plan::sequel(&change, life, self.now, &mut self.chance) {
            self.queue.add(at, Happening::Change(change));
        }
        self.publish();
    }

    /// False if it makes no sense now.
    fn try_change(&mut self, change: &Change) -> bool {
        match change {
            Change::Join(node) => return self.join(*node),
            Change::Drain(node) => return self.drain(*node),
            Change::Leave { node, life } => {
                let own = &mut self.nodes[*node];
                own.is_open = false;
                self.service.remove(&own.name, *life);
            }
            Change::Stop { node, life } => {
                if self.nodes[*node].incarnation == *life {
                    self.nodes[*node].stop();
                    self.show(&Event::Stopped { node: *node });
                }
            }
            Change::Crash(node) => return self.crash(*node),
            Change::Expire { node, life } => {
                self.service.remove(&self.nodes[*node].name, *life);
            }
            Change::Flap(node) => {
                let Node { name, incarnation, .. } = &self.nodes[*node];
                self.service.remove(name, *incarnation);
                return self.nodes[*node].is_up();
            }
            Change::Return { node, life } => {
                let own = &self.nodes[*node];
                if own.is_up() && own.incarnation == *life && !own.is_leaving {
                    self.service.register(own.member());
                }
            }
            Change::Rotate => {
                self.service.rotate(HashKey(self.chance.octets()));
                self.show(&Event::Changing);
            }
            Change::Stall => self.service.stall(true),
            Change::Resume => self.service.stall(false),
            Change::Cut(pairs) => self.network.cuts.extend(pairs),
            Change::Mend => self.network.cuts.clear(),
            Change::Noise { loss, double, spike } => {
                self.network.loss_per_mille = *loss;
                self.network.double_per_mille = *double;
                self.network.spike_per_mille = *spike;
            }
            Change::Weather(weather) => self.set_weather(*weather),
            Change::Heal => self.heal(),
            Change::Rest => self.rest(),
            Change::Calm => self.calm(),
            Change::Hush => self.phase = Phase::Nothing,
            Change::End => self.is_over = true,
        }
        true
    }

    /// A node starts. It goes by what it can learn before it is a member, so
    /// that it knows whom to ask for what it is going to own; or it hears of the
    /// others when they hear of it.
    fn join(&mut self, at: usize) -> bool {
        if self.nodes[at].is_up() {
            return false;
        }
        self.show(&Event::Changing);
        let node = &mut self.nodes[at];
        node.incarnation = self.chance.among(1..1 << 60);
        node.ahead = self.chance.among(0..1 << 40);
        node.began_alone = self.service.is_stalled() || self.chance.happens(500);
        let told = match node.began_alone {
            true => self.service.alone(node.member()),
            false => self.service.told().clone(),
        };
        let before = self.service.told_before().filter(|_| !node.began_alone);
        let chance = &mut self.chance;
        node.start(before.as_ref().unwrap_or(&told), &self.config, || chance.octets());
        let life = node.incarnation;
        if before.is_some() {
            for cell in 0..node.cells.len() {
                self.show_view(CellId { node: at, cell }, life, told.clone());
            }
        }
        let node = &mut self.nodes[at];
        // Who crashed and comes back does not wait until all is in order.
        node.is_open = self.settings.kind == Kind::Chaos;
        self.service.register(node.member());
        true
    }

    fn drain(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        let may = node.is_up()
            && !node.is_leaving
            && self.service.has(&node.name)
            && self.service.serving() > 1;
        if may {
            node.is_leaving = true;
            self.service.drain(&node.name);
            self.show(&Event::Changing);
        }
        may
    }

    fn crash(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        let is_up = node.is_up();
        if is_up {
            node.stop();
            self.show(&Event::Crashed { node: at });
        }
        is_up
    }

    fn set_weather(&mut self, weather: Weather) {
        self.upstream.weather = weather;
        self.show(&Event::Weather { is_bad: weather != Weather::default() });
    }

    /// Everything is put in order, and nobody asks for a while.
    fn heal(&mut self) {
        self.phase = Phase::Nothing;
        self.network.heal();
        if self.upstream.weather != Weather::default() {
            self.set_weather(Weather::default());
        }
        self.service.stall(false);
        for at in 0..self.nodes.len() {
            if self.nodes[at].is_leaving && self.nodes[at].is_up() {
                self.crash(at);
            }
            let node = &self.nodes[at];
            match node.is_up() {
                true if !self.service.has(&node.name) => self.service.register(node.member()),
                true => {}
                false => self.service.remove(&node.name, node.incarnation),
            }
        }
        if self.nodes.iter().all(|node| !node.is_up()) {
            self.join(0);
        }
        self.nodes.iter_mut().for_each(|node| node.is_open = node.is_up());
        self.is_healed = true;
    }

    /// Cells are looked at.
    fn rest(&mut self) {
        if self.sabotages(Sabotage::UnseenQuestion) {
            self.ask_unseen();
        }
        for node in 0..self.nodes.len() {
            for cell in 0..self.nodes[node].cells.len() {
                let running = &self.nodes[node].cells[cell].cell;
                let (tag, sizes) = (running.routing().tag(), running.sizes());
                let due = running.next_due();
                self.show(&Event::Rested { cell: CellId { node, cell }, tag, sizes: &sizes, due });
            }
        }
    }

    /// New names are asked for, and what forgers aimed at.
    fn calm(&mut self) {
        self.phase = Phase::New;
        self.show(&Event::Calm);
        for (to, wish) in std::mem::take(&mut self.aims) {
            let at = self.now + self.chance.among(0..SECOND);
            if to.cell < self.nodes[to.node].cells.len() {
                self.queue.add(at, Happening::Ask { to, wish, over_stream: true });
            }
        }
    }

    /// Tells all nodes of a new view, if there is one.
    fn publish(&mut self) {
        let Some(told) = self.service.publish() else { return };
        for (at, node) in self.nodes.iter().enumerate() {
            let delay = match self.settings.kind {
                Kind::Chaos => self.chance.weigh(&[(8, 50), (3, 500), (1, 2_000)]),
                _ => 50,
            };
            let first = self.now + self.chance.among(MILLI..delay * MILLI);
            if self.sabotage == Some(Sabotage::WithheldViews) && at == 0 {
                continue;
            }
            for cell in 0..node.cells.len() {
                // Threads do not hear of it at the same moment.
                let at_time = first + self.chance.among(0..MILLI);
                let (cell, life) = (CellId { node: at, cell }, node.incarnation);
                self.queue.add(at_time, Happening::View { cell, life, told: told.clone() });
            }
        }
    }
}
