//! The server under test: a catalogue, and how it is asked.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::OnceLock;

use authority::problem::Problems;
use authority::zonefile::{NoIncludes, Reader};
use authority::{
    Arrival, Catalog, Change, Compiler, Context, Image, NameHasher, Outcome, Placement, RecordSet,
    Scratch, Settings, Transport, respond,
};
use wire::{CookieSecrets, Name, Secret};

use crate::model::Model;

/// Unix time of every question.
pub const NOW_SECS: u32 = 1_700_000_000;
/// How long connections are kept, in units of 100 ms.
pub const IDLE_100MS: u16 = 300;
/// Name of the zone that could not be loaded.
pub const BROKEN: &[u8] = b"\x06broken\x04test\0";

/// The question before every question: IXFR, because its type is the only one
/// that lets a message have records in its authority section.
const BEFORE: &[u8] = b"\0\0\x01\x10\0\x01\0\0\0\0\0\x01\x04left\x04over\0\0\xfb\0\x03\
    \0\0\x29\xff\xff\0\0\x80\0\0\x10\0\x03\0\0\0\x0a\0\x08leftover";

/// The zones of the fixed catalogue. See the comment at the top of each.
pub const ZONES: [(&str, &str); 10] = [
    ("rich", include_str!("../zones/rich.zone")),
    ("child", include_str!("../zones/child.zone")),
    ("other", include_str!("../zones/other.zone")),
    ("loops", include_str!("../zones/loops.zone")),
    ("sibling-a", include_str!("../zones/sibling-a.zone")),
    ("sibling-b", include_str!("../zones/sibling-b.zone")),
    ("deep", include_str!("../zones/deep.zone")),
    ("nsec", include_str!("../zones/nsec.zone")),
    ("nsec3", include_str!("../zones/nsec3.zone")),
    ("optout", include_str!("../zones/optout.zone")),
];
const ROOT: &str = include_str!("../zones/root.zone");

/// The keys of the names' hashes. Fixed: a finding must come back.
pub fn hasher() -> NameHasher {
    NameHasher::new(*b"pharos fuzz keys")
}

/// Settings by the lower bits of an octet: 1 cookies, 2 an identity as long as
/// it may be, 4 a version, 8 and 16 one of four payloads.
pub fn settings(setup: u8) -> Settings {
    let secret = |octet| Secret([octet; 16]);
    Settings {
        udp_payload: [1232, 512, 4096, 65_535][usize::from(setup >> 3 & 3)],
        identity: (setup & 2 != 0).then(|| "i".repeat(255)),
        version: (setup & 4 != 0).then(|| "Pharos".into()),
        cookies: (setup & 1 != 0)
            .then(|| CookieSecrets { current: secret(1), previous: Some(secret(2)) }),
    }
}

/// A catalogue with its keys.
#[derive(Debug)]
pub struct Server {
    catalog: Catalog,
    hasher: NameHasher,
}

/// The fixed catalogue and the model of its zones.
#[derive(Debug)]
pub struct Fixed {
    server: Server,
    model: Model,
}

impl Fixed {
    /// Calls `then` with both.
    pub fn with<T>(&self, then: impl FnOnce(&Server, &Model) -> T) -> T {
        then(&self.server, &self.model)
    }
}

impl Server {
    /// A server of these zones.
    pub fn of(images: Vec<Image>) -> Server {
        let changes = images.into_iter().map(Change::Put).collect();
        Server { catalog: Catalog::default().with(changes), hasher: hasher() }
    }

    /// The server of [`ZONES`], a broken zone, and a root zone if wanted: with
    /// it, no name is somebody else's.
    pub fn fixed(has_root: bool) -> &'static Fixed {
        static SERVERS: [OnceLock<Fixed>; 2] = [const { OnceLock::new() }; 2];
        SERVERS[usize::from(has_root)].get_or_init(|| {
            let mut model = Model::default();
            let mut images = vec![Image::broken(
                Name::parse(BROKEN).expect("a name"),
                &Placement::Everywhere,
                &hasher(),
            )];
            model.add_broken(BROKEN);
            for (name, text) in ZONES {
                images.push(compile(name, text, &mut model));
            }
            if has_root {
                images.push(compile("root", ROOT, &mut model));
            }
            Fixed { server: Server::of(images), model }
        })
    }

    /// The zones.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Asks with buffers used before, and with new ones: no answer may depend
    /// on what an earlier question left behind. Of the questions before, the
    /// last is always the same, so that a finding comes back alone.
    pub fn ask(
        &self,
        settings: &Settings,
        from: IpAddr,
        transport: Transport,
        packet: &[u8],
    ) -> (Outcome, Vec<u8>) {
        thread_local! {
            static DESK: RefCell<(Scratch, Vec<u8>)> =
                RefCell::new((Scratch::default(), vec![0; 65_535]));
        }
        let context =
            Context { catalog: &self.catalog, hasher: &self.hasher, settings, now_secs: NOW_SECS };
        let arrival = Arrival::new(from, transport);
        // The least room that an answer is given; the first has more, because
        // the limit of an answer is not where its room ends.
        let len = match transport {
            Transport::Udp => usize::from(settings.udp_payload.max(512)),
            Transport::Tcp { .. } => 65_535,
        };
        DESK.with_borrow_mut(|(scratch, out)| {
            let _ = scratch.query.read(BEFORE);
            let outcome = respond(&context, scratch, packet, arrival, out);
            let first = out[..outcome.len].to_vec();
            let out = &mut out[..len];
            out.fill(0xa5);
            let again = respond(&context, &mut Scratch::default(), packet, arrival, out);
            assert_eq!(outcome, again, "the same question, another outcome");
            assert!(first == out[..again.len], "the same question, another answer");
            (outcome, first)
        })
    }
}

fn compile(name: &str, text: &str, model: &mut Model) -> Image {
    let (mut records, mut problems) = (RecordSet::default(), Problems::new(name));
    Reader::new().read(text.as_bytes(), None, &mut NoIncludes, &mut records, &mut problems);
    let image =
        Compiler::new(hasher()).compile(&mut records, &Placement::Everywhere, &mut problems);
    model.add_zone(&records);
    image.unwrap_or_else(|| panic!("the zone {name} is not good:\n{problems}"))
}
