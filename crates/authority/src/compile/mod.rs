//! Records to a compiled zone.
//!
//! [`Compiler::compile`] takes everything a reader found, sorts it into names
//! and record sets ([`tree`]), checks what only the whole zone can show
//! ([`check`]), renders every set as answers will carry it ([`render`]), and
//! lays the image out ([`layout`]). Problems are collected; an error among
//! them means no image. The compiler keeps its buffers from zone to zone.
//!
//! What is decided here about zones that are not quite right:
//!
//! | found | what happens |
//! |---|---|
//! | no SOA, more than one SOA | error |
//! | no NS at the top, and the zone has no shard | error |
//! | CNAME beside other data, two CNAMEs or DNAMEs at a name | error |
//! | data below a DNAME (RFC 6672, 2.4) | error |
//! | NS beside a DNAME, but for the top (RFC 6672, 2.3) | error |
//! | a record set that fits no message | error |
//! | a record outside the zone | warning; the record is left out |
//! | different TTLs in a record set (RFC 2181, 5.2) | warning; the lowest counts |
//! | an NS record at a wildcard (RFC 4592, 4.2) | warning; it does not delegate |
//! | a name server inside the zone without an address | warning |
//! | NS records at the top, and the zone has a shard | replaced by the shard's names |
//! | the same, but they are signed | they stay; warning if they name other servers |
//! | a signature over nothing | warning; the record is left out |
//! | the same record twice | the copy is left out |

mod check;
mod layout;
mod render;
mod tree;

use crate::hash::NameHasher;
use crate::image::Image;
use crate::placement::Placement;
use crate::problem::Problems;
use crate::records::RecordSet;

/// Octets of one compiled zone at the most, so that offsets fit 32 bits.
pub const IMAGE_LEN_MAX: usize = u32::MAX as usize;
/// NSEC3 iterations accepted. Each answer of absence hashes names this often
/// three times over, so a tenant must not choose the number freely; resolvers
/// treat zones above 100 to 150 as unsigned anyway (RFC 9276, 3.2).
pub const NSEC3_ITERATIONS_MAX: u16 = 150;

/// Compiles zones, one after the other.
#[derive(Debug)]
pub struct Compiler {
    hasher: NameHasher,
    tree: tree::Tree,
    layout: layout::Layout,
}

impl Compiler {
    /// A compiler whose images are looked up with `hasher`.
    pub fn new(hasher: NameHasher) -> Self {
        Compiler { hasher, tree: tree::Tree::default(), layout: layout::Layout::default() }
    }

    /// Compiles `records`, noting problems. No image if there is any error,
    /// the reader's included. The NS records of a zone with a shard are the
    /// shard's; `records` has these then.
    pub fn compile(
        &mut self,
        records: &mut RecordSet,
        placement: &Placement,
        problems: &mut Problems,
    ) -> Option<Image> {
        if let Placement::Shard(shard) = placement {
            shard.take_over(records, problems);
        }
        let records = &*records;
        self.tree.build(records, problems)?;
        check::check(&mut self.tree, records, problems);
        if problems.errors() > 0 {
            return None;
        }
        self.layout.write(&self.tree, records, placement, &self.hasher, problems)?;
        (problems.errors() == 0).then(|| Image::from_octets(self.layout.octets()))
    }
}

/// The name of the zone that `records` describe: the owner of the first SOA.
pub fn origin_of(records: &RecordSet) -> Option<Vec<u8>> {
    let soa = records.iter().find(|record| record.rtype == wire::rtype::SOA)?;
    Some(soa.owner.to_ascii_lowercase())
}
