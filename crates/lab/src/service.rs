//! The coordination service: it knows the members and the hash key, numbers
//! views, and may stall. What it knows and what nodes have heard of it are two
//! things.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{Epoch, HashKey, Member, Placement, Routing, Standing, View};

/// A routing and the number under which it was told.
#[derive(Clone, Debug)]
pub struct Told {
    pub number: u64,
    pub routing: Arc<Routing>,
}

#[derive(Debug)]
pub struct Service {
    members: BTreeMap<Arc<str>, Member>,
    epoch: Epoch,
    /// The epoch before.
    former: Option<Epoch>,
    placement: Placement,
    replicas: usize,
    is_stalled: bool,
    /// Something changed that nobody was told.
    has_news: bool,
    told: Told,
}

impl Service {
    /// With these members from the start.
    pub fn new(members: Vec<Member>, key: HashKey, placement: Placement, replicas: usize) -> Self {
        let members: BTreeMap<_, _> =
            members.into_iter().map(|member| (member.name.clone(), member)).collect();
        let epoch = Epoch { number: 1, key };
        let all = members.values().cloned().collect();
        let told = Told { number: 1, routing: routing(1, all, placement, replicas, epoch) };
        Service {
            members,
            epoch,
            former: None,
            placement,
            replicas,
            is_stalled: false,
            has_news: false,
            told,
        }
    }

    /// A member comes, or comes back as another self.
    pub fn register(&mut self, member: Member) {
        self.members.insert(member.name.clone(), member);
        self.has_news = true;
    }

    /// A member goes, unless another self has taken its place.
    pub fn remove(&mut self, name: &str, incarnation: u64) {
        if self.members.get(name).is_some_and(|member| member.incarnation == incarnation) {
            self.members.remove(name);
            self.has_news = true;
        }
    }

    /// A member is on its way out.
    pub fn drain(&mut self, name: &str) {
        if let Some(member) = self.members.get_mut(name) {
            member.standing = Standing::Draining;
            self.has_news = true;
        }
    }

    /// Another key from now on.
    pub fn rotate(&mut self, key: HashKey) {
        self.former = Some(self.epoch);
        self.epoch = Epoch { number: self.epoch.number + 1, key };
        self.has_news = true;
    }

    pub fn stall(&mut self, is_stalled: bool) {
        self.is_stalled = is_stalled;
    }

    pub fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    pub fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// Members that serve.
    pub fn serving(&self) -> usize {
        let members = self.members.values();
        members.filter(|member| member.standing == Standing::Serving).count()
    }

    /// What nodes are to be told, if there is anything new and nothing is in
    /// the way.
    pub fn publish(&mut self) -> Option<Told> {
        if self.is_stalled || !std::mem::take(&mut self.has_news) {
            return None;
        }
        let number = self.told.number + 1;
        let members = self.members.values().cloned().collect();
        let routing = routing(number, members, self.placement, self.replicas, self.epoch);
        self.told = Told { number, routing };
        Some(self.told.clone())
    }

    /// What nodes were told last.
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// The same members under the key before, for newcomers: entries that were
    /// not asked for since are still where they were then.
    pub fn told_before(&self) -> Option<Told> {
        let epoch = self.former?;
        let members = self.told.routing.view().members().to_vec();
        Some(Told { number: 0, routing: routing(0, members, self.placement, self.replicas, epoch) })
    }

    /// What `told` would be without the member called `name`; nothing if there
    /// is nobody else.
    pub fn without(&self, told: &Told, name: &str) -> Option<Arc<Routing>> {
        let members = told.routing.view().members().iter();
        let others: Vec<Member> = members.filter(|own| &*own.name != name).cloned().collect();
        let epoch = *told.routing.epoch();
        let make = || routing(0, others, self.placement, self.replicas, epoch);
        (told.routing.view().members().len() > 1).then(make)
    }

    /// What a node goes by that never heard of anybody else.
    pub fn alone(&self, member: Member) -> Told {
        let routing = routing(0, vec![member], self.placement, self.replicas, self.epoch);
        Told { number: 0, routing }
    }
}

fn routing(
    number: u64,
    members: Vec<Member>,
    placement: Placement,
    replicas: usize,
    epoch: Epoch,
) -> Arc<Routing> {
    let view = View::new(number, members).expect("members have names of their own");
    Arc::new(Routing::new(Arc::new(view), placement, replicas, epoch))
}
