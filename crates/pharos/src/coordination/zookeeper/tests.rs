//! Nodes against a real ZooKeeper: one that is well, and one that is not.

mod service;

use std::sync::{Arc, Mutex};

use cluster::{Member, Standing};
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, CreateMode};

use super::super::record::member_for_tests;
use super::super::{Coordinator, Membership, Observer};
use super::*;
use service::{Mode, SESSION, Service, Way, in_time};

const ROOT: &str = "/tests/pharos";
/// A day: no key rotates, and nobody is given up, unless a test wants it.
const NEVER: Duration = Duration::from_secs(24 * 3600);
const PERSISTENT: zookeeper_client::CreateOptions<'static> =
    CreateMode::Persistent.with_acls(Acls::anyone_all());

fn zookeeper(address: String) -> ZooKeeper {
    ZooKeeper { place: place(address), return_grace: NEVER, key_rotation: NEVER }
}

fn place(address: String) -> ZooKeeperPlace {
    ZooKeeperPlace { servers: vec![address], root: ROOT.to_owned(), session_timeout: SESSION }
}

fn start(service: &Service, own: &Member) -> Coordinator {
    Coordinator::run(zookeeper(service.address()), own.clone())
}

fn members<const N: usize>(names: [&str; N]) -> [Member; N] {
    names.map(|name| member_for_tests(name, 1))
}

/// Starts a node for each of `members`, and waits until all know all.
async fn start_all(service: &Service, members: &[Member]) -> Vec<Coordinator> {
    let nodes: Vec<Coordinator> = members.iter().map(|own| start(service, own)).collect();
    agree(&nodes, members).await;
    nodes
}

async fn until(node: &Coordinator, is_so: impl FnMut(&Arc<Membership>) -> bool) -> Arc<Membership> {
    let mut membership = node.membership();
    in_time("a node knows", membership.wait_for(is_so)).await.unwrap().clone()
}

/// Waits until all nodes know `members` by the same number, and the same epoch.
async fn agree(nodes: &[Coordinator], members: &[Member]) -> Arc<Membership> {
    in_time("nodes agree", async {
        loop {
            let first = until(&nodes[0], |known| known.view.members() == members).await;
            let known = nodes.iter().map(|node| node.membership().borrow().clone());
            if known.into_iter().all(|known| known == first) && first.epochs.current.number > 0 {
                return first;
            }
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

/// Waits until nodes do or do not reach the service.
async fn reach(nodes: &[Coordinator], reached: bool) {
    in_time("nodes reach the service or lose it", async {
        while nodes.iter().any(|node| node.is_reached() != reached) {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Every membership that a node published from now on.
struct Record {
    seen: Arc<Mutex<Vec<Arc<Membership>>>>,
    task: JoinHandle<()>,
}

impl Record {
    fn of(node: &Coordinator) -> Self {
        let mut membership = node.membership();
        let seen = Arc::new(Mutex::new(vec![membership.borrow_and_update().clone()]));
        let kept = seen.clone();
        let task = tokio::spawn(async move {
            while membership.changed().await.is_ok() {
                kept.lock().unwrap().push(membership.borrow_and_update().clone());
            }
        });
        Record { seen, task }
    }

    fn of_all(nodes: &[Coordinator]) -> Vec<Self> {
        nodes.iter().map(Record::of).collect()
    }

    /// Checks that nobody of `members` was ever missing, and that numbers of
    /// views and epochs never went back.
    fn check(&self, members: &[Member]) {
        let seen = self.seen.lock().unwrap();
        for known in seen.iter() {
            for member in members {
                assert!(known.view.find(&member.name).is_some(), "{}: {known:#?}", member.name);
            }
        }
        for pair in seen.windows(2) {
            assert!(pair[0].view.number() <= pair[1].view.number(), "{pair:#?}");
            assert!(pair[0].epochs.current.number <= pair[1].epochs.current.number, "{pair:#?}");
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_never_goes_back() {
    let epochs = Epochs::unagreed().agreed();
    let later = epochs.next();
    let mut newcomer = Epochs::unagreed().agreed();
    newcomer.current.started_secs += 1;
    let stored = |epochs| Some(Agreement { epochs, views_from: 0 });
    for (stored, known, expected) in [
        (None, epochs, epochs),
        (stored(epochs), Epochs::unagreed(), epochs),
        (stored(later), epochs, later),
        (stored(epochs), later, later),
        (stored(newcomer), epochs, epochs),
        (stored(epochs), newcomer, epochs),
    ] {
        let wanted = want(stored, known, 5, 5, &mut Rotation::new(NEVER));
        assert_eq!(wanted, Agreement { epochs: expected, views_from: 0 });
    }
    // A service that counts from the beginning again, and one that does not.
    assert_eq!(want(stored(epochs), epochs, 5, 9, &mut Rotation::new(NEVER)).views_from, 9);
    assert_eq!(want(stored(epochs), epochs, 9, 9, &mut Rotation::new(NEVER)).views_from, 0);

    let mut rotation = Rotation::new(NEVER);
    assert_eq!(want(stored(epochs), epochs, 5, 5, &mut rotation).epochs, epochs);
    tokio::time::advance(NEVER).await;
    let rotated = want(stored(epochs), epochs, 5, 5, &mut rotation).epochs;
    assert_eq!(rotated.previous, Some(epochs.current));
}

#[tokio::test]
async fn nodes_join_drain_and_leave() {
    let Some(service) = Service::start().await else { return };
    let [a, b, c] = members(["a", "b", "c"]);
    let mut nodes = start_all(&service, &[a.clone(), b.clone(), c.clone()]).await;
    let joined = agree(&nodes, &[a.clone(), b.clone(), c.clone()]).await;
    assert_eq!(joined.epochs.current.number, 1);
    reach(&nodes, true).await;

    nodes[1].set_standing(Standing::Draining);
    let b = Member { standing: Standing::Draining, ..b };
    let drained = agree(&nodes, &[a.clone(), b.clone(), c.clone()]).await;
    assert!(drained.view.number() > joined.view.number());

    // One goes with a word, one without; both are gone without any wait for
    // the end of a session, and the rest knows it by the same number.
    nodes.remove(1).leave().await;
    let left = agree(&nodes, &[a.clone(), c.clone()]).await;
    assert!(left.view.number() > drained.view.number());
    assert_eq!(left.epochs, joined.epochs);
    drop(nodes.pop());
    let dropped = agree(&nodes, std::slice::from_ref(&a)).await;
    assert!(dropped.view.number() > left.view.number());
}

#[tokio::test]
async fn a_restarted_node_replaces_its_former_self_without_a_gap() {
    let Some(service) = Service::start().await else { return };
    let [a, b] = members(["a", "b"]);
    let way = Way::to(&service).await;
    let first = Coordinator::run(zookeeper(way.address()), b.clone());
    let mut nodes = vec![start(&service, &a)];
    until(&nodes[0], |known| known.view.members() == [a.clone(), b.clone()]).await;
    let record = Record::of(&nodes[0]);

    // Nothing more is heard of the first, but its session lives on.
    way.set(Mode::Frozen);
    drop(first);
    let again = member_for_tests("b", 2);
    nodes.push(start(&service, &again));
    agree(&nodes, &[a, again.clone()]).await;
    record.check(&[again]);
}

#[tokio::test]
async fn of_two_nodes_with_one_name_the_later_is_the_member() {
    let Some(service) = Service::start().await else { return };
    let [a, b, c] = members(["a", "b", "c"]);
    let nodes = start_all(&service, &[a.clone(), b.clone()]).await;
    let late = Member { incarnation: 2, peer: ([127, 0, 0, 2], 4000).into(), ..b.clone() };
    let later = start(&service, &late);
    until(&nodes[0], |known| known.view.members() == [a.clone(), late.clone()]).await;
    let record = Record::of(&nodes[0]);

    // The earlier one looks again with every change, and stays out.
    for _ in 0..3 {
        let other = start(&service, &c);
        until(&nodes[1], |known| known.view.find("c").is_some()).await;
        drop(other);
        until(&nodes[1], |known| known.view.find("c").is_none()).await;
    }
    until(&nodes[0], |known| known.view.members() == [a.clone(), late.clone()]).await;
    for known in record.seen.lock().unwrap().iter() {
        assert!(known.view.members().contains(&late), "{known:#?}");
    }
    drop(later);
    agree(&nodes, &[a, b]).await;
}

#[tokio::test]
async fn a_service_that_stands_still_throws_nobody_out() {
    let Some(service) = Service::start().await else { return };
    let all = members(["a", "b", "c"]);
    let nodes = start_all(&service, &all).await;
    let before = agree(&nodes, &all).await;
    let records = Record::of_all(&nodes);

    service.freeze();
    reach(&nodes, false).await;
    // Longer than the sessions last.
    sleep(SESSION * 2).await;
    service.thaw();
    reach(&nodes, true).await;
    let after = agree(&nodes, &all).await;
    assert_eq!(after.epochs, before.epochs);
    records.iter().for_each(|record| record.check(&all));

    // All is as before: changes are seen.
    nodes[0].set_standing(Standing::Draining);
    let [a, b, c] = all;
    agree(&nodes, &[Member { standing: Standing::Draining, ..a }, b, c]).await;
}

#[tokio::test]
async fn a_service_that_comes_back_without_its_memory_is_told_again() {
    let Some(mut service) = Service::start().await else { return };
    let all = members(["a", "b", "c"]);
    let nodes = start_all(&service, &all).await;
    // So that the service has counted further than it will have at first.
    for _ in 0..10 {
        nodes[0].set_standing(Standing::Draining);
        until(&nodes[1], |known| known.view.members()[0].standing == Standing::Draining).await;
        nodes[0].set_standing(Standing::Serving);
        until(&nodes[1], |known| known.view.members()[0].standing == Standing::Serving).await;
    }
    let before = agree(&nodes, &all).await;
    let records = Record::of_all(&nodes);

    service.destroy();
    reach(&nodes, false).await;
    service.revive().await;
    reach(&nodes, true).await;
    let after = agree(&nodes, &all).await;
    assert_eq!(after.epochs, before.epochs);
    assert!(after.view.number() > before.view.number(), "{before:#?} {after:#?}");
    records.iter().for_each(|record| record.check(&all));

    // A newcomer learns the epoch and the numbers that the others had.
    let d = member_for_tests("d", 1);
    let mut nodes = nodes;
    nodes.push(start(&service, &d));
    let [a, b, c] = all;
    let joined = agree(&nodes, &[a, b, c, d]).await;
    assert_eq!(joined.epochs, before.epochs);
}

#[tokio::test]
async fn who_does_not_come_back_with_the_service_is_given_up_in_the_end() {
    let Some(mut service) = Service::start().await else { return };
    let all = members(["a", "b"]);
    let zookeeper = ZooKeeper { return_grace: SESSION, ..zookeeper(service.address()) };
    let node = Coordinator::run(zookeeper, all[0].clone());
    let other = start(&service, &all[1]);
    until(&node, |known| known.view.members() == all).await;

    service.destroy();
    reach(std::slice::from_ref(&node), false).await;
    drop(other);
    service.revive().await;
    reach(std::slice::from_ref(&node), true).await;
    until(&node, |known| known.view.members() == &all[..1]).await;
}

#[tokio::test]
async fn a_node_whose_session_expired_registers_again() {
    let Some(service) = Service::start().await else { return };
    let all = members(["a", "b"]);
    let way = Way::to(&service).await;
    let cut_off = Coordinator::run(zookeeper(way.address()), all[1].clone());
    let nodes = [start(&service, &all[0]), cut_off];
    agree(&nodes, &all).await;
    let record = Record::of(&nodes[1]);

    way.set(Mode::Frozen);
    until(&nodes[0], |known| known.view.members() == &all[..1]).await;
    assert_eq!(nodes[1].membership().borrow().view.members(), all);
    way.set(Mode::Open);
    agree(&nodes, &all).await;
    record.check(&all);
}

#[tokio::test]
async fn answers_that_never_arrive_end_nothing() {
    let Some(service) = Service::start().await else { return };
    let [a, b, c] = members(["a", "b", "c"]);
    let way = Way::to(&service).await;
    let nodes = [start(&service, &a), Coordinator::run(zookeeper(way.address()), b.clone())];
    agree(&nodes, &[a.clone(), b.clone()]).await;
    let record = Record::of(&nodes[1]);

    // The watch fires into a connection that breaks at the first answer, and
    // so does every call after it.
    way.set(Mode::Severed);
    let third = start(&service, &c);
    until(&nodes[0], |known| known.view.find("c").is_some()).await;
    reach(&nodes[1..], false).await;
    sleep(SESSION / 2).await;
    way.set(Mode::Open);
    let [first, second] = nodes;
    agree(&[first, second, third], &[a.clone(), b.clone(), c]).await;
    record.check(&[a, b]);
}

#[tokio::test]
async fn nonsense_in_znodes_changes_nothing() {
    let Some(service) = Service::start().await else { return };
    let all = members(["a", "b"]);
    let nodes = start_all(&service, &all).await;
    let before = agree(&nodes, &all).await;
    let records = Record::of_all(&nodes);
    let client = service.client().await;

    let junk = format!("{ROOT}/members/junk");
    client.create(&junk, b"{\"version\":1", &PERSISTENT).await.unwrap();
    client.set_data(&format!("{ROOT}/epoch"), b"", None).await.unwrap();
    until(&nodes[0], |known| known.view.number() > before.view.number()).await;
    assert_eq!(agree(&nodes, &all).await.epochs, before.epochs);

    // Once the nonsense is gone the epoch is what it was, for newcomers too.
    client.delete(&format!("{ROOT}/epoch"), None).await.unwrap();
    client.delete(&junk, None).await.unwrap();
    in_time("the epoch is written again", async {
        while client.get_data(&format!("{ROOT}/epoch")).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let [a, b] = all.clone();
    let c = member_for_tests("c", 1);
    let [one, two] = <[Coordinator; 2]>::try_from(nodes).unwrap();
    let nodes = [one, two, start(&service, &c)];
    assert_eq!(agree(&nodes, &[a, b, c]).await.epochs, before.epochs);
    records.iter().for_each(|record| record.check(&all));
}

#[tokio::test]
async fn znodes_that_somebody_deletes_come_back_and_nobody_is_missed() {
    let Some(service) = Service::start().await else { return };
    let all = members(["a", "b"]);
    let way = Way::to(&service).await;
    let nodes =
        [start(&service, &all[0]), Coordinator::run(zookeeper(way.address()), all[1].clone())];
    let before = agree(&nodes, &all).await;
    let records = Record::of_all(&nodes);

    // All at once, as if somebody cleaned up; and one comes back much later.
    way.set(Mode::Frozen);
    let client = service.client().await;
    let mut cleaning = client.new_multi_writer();
    for path in ["epoch", "members/a", "members/b", "members"] {
        cleaning.add_delete(&format!("{ROOT}/{path}"), None).unwrap();
    }
    cleaning.commit().await.unwrap();
    until(&nodes[0], |known| known.view.number() > before.view.number()).await;
    way.set(Mode::Open);
    let is_whole = |known: &Membership| known.view.number() > before.view.number();
    until(&nodes[1], |known| is_whole(known)).await;
    assert_eq!(agree(&nodes, &all).await.epochs, before.epochs);
    records.iter().for_each(|record| record.check(&all));
    in_time("both register again", async {
        while client.list_children(&format!("{ROOT}/members")).await.map_or(0, |all| all.len()) < 2
        {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_nodes_that_rotate_the_key_at_once_one_wins() {
    let Some(service) = Service::start().await else { return };
    let (one, two) = (service.client().await, service.client().await);
    let first = Agreement { epochs: Epochs::unagreed().agreed(), views_from: 0 };
    let rotate = move |stored: Option<Agreement>| match stored {
        None => first,
        Some(stored) if stored == first => Agreement { epochs: first.epochs.next(), ..first },
        Some(stored) => stored,
    };
    let agreed = |stored: Result<Stored, Failure>| match stored {
        Ok(Stored::Agreement(agreement, _)) => agreement.epochs,
        other => panic!("{other:?}"),
    };
    let znodes = Znodes::new(ROOT);
    znodes.prepare(&one).await.unwrap();
    agreed(znodes.agree(&one, |stored| stored.unwrap_or(first)).await);

    // The slow one has read the first epoch, and writes the next one only when
    // the fast one is done.
    let (has_read, reads) = tokio::sync::oneshot::channel();
    let (is_done, done) = std::sync::mpsc::channel();
    let slow = tokio::spawn(async move {
        let mut first_look = Some((has_read, done));
        let wanted = |stored| {
            if let Some((has_read, done)) = first_look.take() {
                has_read.send(()).unwrap();
                done.recv().unwrap();
            }
            rotate(stored)
        };
        Znodes::new(ROOT).agree(&one, wanted).await
    });
    in_time("the slow one reads", reads).await.unwrap();
    let fast = agreed(in_time("the fast one agrees", znodes.agree(&two, rotate)).await);
    is_done.send(()).unwrap();
    let slow = agreed(in_time("the slow one agrees", slow).await.unwrap());
    assert_eq!(slow, fast);
    assert_eq!((fast.current.number, fast.previous), (2, Some(first.epochs.current)));
}

#[tokio::test]
async fn the_key_rotates_for_all_and_waits_while_the_service_is_away() {
    let Some(service) = Service::start().await else { return };
    let all = members(["a", "b"]);
    let nodes: Vec<Coordinator> = all
        .iter()
        .map(|own| {
            let key_rotation = SESSION * 2;
            let zookeeper = ZooKeeper { key_rotation, ..zookeeper(service.address()) };
            Coordinator::run(zookeeper, own.clone())
        })
        .collect();
    let records = Record::of_all(&nodes);
    for node in &nodes {
        until(node, |known| known.epochs.current.number >= 3).await;
    }
    service.freeze();
    reach(&nodes, false).await;
    let held = nodes[0].membership().borrow().epochs.current.number;
    sleep(SESSION * 3).await;
    assert_eq!(nodes[0].membership().borrow().epochs.current.number, held);
    service.thaw();
    for node in &nodes {
        until(node, |known| known.epochs.current.number > held).await;
    }
    // Whoever saw an epoch saw the same.
    let epochs = records.iter().flat_map(|record| record.seen.lock().unwrap().clone());
    let mut epochs: Vec<_> = epochs.map(|known| known.epochs.current).collect();
    epochs.sort_by_key(|epoch| (epoch.number, epoch.salt));
    epochs.dedup();
    let agreed = epochs.iter().filter(|epoch| epoch.number > 0);
    let numbers: Vec<u64> = agreed.map(|epoch| epoch.number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

fn observe(address: String) -> Observer {
    Observer::with_grace(&place(address), NEVER)
}

/// Waits until an observer sees exactly these.
async fn sees(observer: &Observer, members: &[Member]) {
    let mut seen = observer.members();
    in_time("an observer sees", seen.wait_for(|seen| **seen == *members)).await.unwrap();
}

async fn is_reached(observer: &Observer, reached: bool) {
    in_time("an observer reaches the service or loses it", async {
        while observer.is_reached() != reached {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_observer_sees_every_change_and_leaves_no_trace() {
    let Some(service) = Service::start().await else { return };
    let client = service.client().await;
    let observer = observe(service.address());
    is_reached(&observer, true).await;
    assert_eq!(client.check_stat("/tests").await.unwrap(), None, "it made something");
    assert!(observer.members().borrow().is_empty());

    let [a, b] = members(["a", "b"]);
    let mut nodes = start_all(&service, &[a.clone(), b.clone()]).await;
    sees(&observer, &[a.clone(), b.clone()]).await;
    nodes[1].set_standing(Standing::Draining);
    let drained = Member { standing: Standing::Draining, ..b.clone() };
    sees(&observer, &[a.clone(), drained]).await;
    nodes.remove(1).leave().await;
    sees(&observer, std::slice::from_ref(&a)).await;
    assert_eq!(client.list_children(&format!("{ROOT}/members")).await.unwrap(), ["a"]);

    // Of a cluster without members the last ones are remembered: what comes after
    // them is the next one, and never nobody.
    let mut seen = observer.members();
    assert_eq!(**seen.borrow_and_update(), [a]);
    let next = tokio::spawn(async move {
        seen.changed().await.unwrap();
        seen.borrow().to_vec()
    });
    nodes.remove(0).leave().await;
    in_time("nobody is left", async {
        while !client.list_children(&format!("{ROOT}/members")).await.unwrap().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let nodes = start_all(&service, std::slice::from_ref(&b)).await;
    assert_eq!(in_time("an observer sees", next).await.unwrap(), [b]);
    drop(nodes);
}

#[tokio::test]
async fn an_observer_keeps_its_list_while_the_service_is_away() {
    let Some(mut service) = Service::start().await else { return };
    let [a, b, c] = members(["a", "b", "c"]);
    let all = [a.clone(), b.clone()];
    let mut nodes = start_all(&service, &all).await;
    let observer = observe(service.address());
    sees(&observer, &all).await;
    let mut seen = observer.members();
    seen.mark_unchanged();

    // It stands still for longer than sessions last; then it forgets all.
    service.freeze();
    is_reached(&observer, false).await;
    reach(&nodes, false).await;
    sleep(SESSION * 2).await;
    service.thaw();
    is_reached(&observer, true).await;
    agree(&nodes, &all).await;
    service.destroy();
    is_reached(&observer, false).await;
    service.revive().await;
    is_reached(&observer, true).await;
    agree(&nodes, &all).await;
    assert!(!seen.has_changed().unwrap(), "{:?}", seen.borrow());

    // Changes are seen again.
    nodes.push(start(&service, &c));
    sees(&observer, &[a, b, c]).await;
}

#[tokio::test]
async fn an_observer_whose_session_expired_looks_again() {
    let Some(service) = Service::start().await else { return };
    let [a, b] = members(["a", "b"]);
    let mut nodes = vec![start(&service, &a)];
    let way = Way::to(&service).await;
    let observer = observe(way.address());
    sees(&observer, std::slice::from_ref(&a)).await;
    way.set(Mode::Frozen);
    nodes.push(start(&service, &b));
    agree(&nodes, &[a.clone(), b.clone()]).await;
    is_reached(&observer, false).await;
    sleep(SESSION * 2).await;
    assert_eq!(**observer.members().borrow(), *std::slice::from_ref(&a));
    way.set(Mode::Open);
    sees(&observer, &[a, b]).await;
}
