//! Whether data in wire form is that of its type.
//!
//! `\#` lets a zone file give the octets of any type (RFC 3597, 5). For a type
//! that is known the octets have to be right all the same: the server copies
//! them into answers, and looks for names in them.

use super::fault::{Outcome, fault, show};
use super::rdata::check_tag;
use super::rdata_rare::gateway_len;
use super::svcb;
use super::types::{Field, Spec};
use wire::name::Name;

/// Checks that `data` holds exactly the fields of `spec`.
pub(super) fn check(spec: &'static Spec, data: &[u8]) -> Outcome<()> {
    let mut rest = data;
    for &(field, label) in spec.fields {
        take_field(field, &mut rest).map_err(|mut fault| {
            fault.what = format!("{} in the {label} of {}", fault.what, spec.name);
            fault
        })?;
    }
    if !rest.is_empty() {
        let what = format!("data of {} octets for {}", data.len(), spec.name);
        return Err(fault(what, format!("{} octets", data.len() - rest.len())));
    }
    Ok(())
}

fn take<'d>(rest: &mut &'d [u8], len: usize) -> Outcome<&'d [u8]> {
    let (taken, tail) = rest
        .split_at_checked(len)
        .ok_or_else(|| fault("data that ends too early", format!("{len} or more octets there")))?;
    *rest = tail;
    Ok(taken)
}

fn take_u8(rest: &mut &[u8]) -> Outcome<u8> {
    Ok(take(rest, 1)?[0])
}

fn take_name(rest: &mut &[u8]) -> Outcome<()> {
    let name = Name::parse(rest).map_err(|error| {
        fault(format!("no whole name ({error})"), "an uncompressed name (RFC 3597, 4)")
    })?;
    *rest = &rest[name.as_bytes().len()..];
    Ok(())
}

fn take_string<'d>(rest: &mut &'d [u8]) -> Outcome<&'d [u8]> {
    let len = take_u8(rest)?;
    take(rest, len.into())
}

fn take_field(field: Field, rest: &mut &[u8]) -> Outcome<()> {
    match field {
        Field::U8 | Field::Algorithm | Field::Scheme => drop(take(rest, 1)?),
        Field::U16 | Field::Type | Field::CertType => drop(take(rest, 2)?),
        Field::U32 | Field::Period | Field::Time | Field::Ipv4 => drop(take(rest, 4)?),
        Field::Ipv6 => drop(take(rest, 16)?),
        Field::Eui48 => drop(take(rest, 6)?),
        Field::Eui64 | Field::Locator64 => drop(take(rest, 8)?),
        Field::Name => take_name(rest)?,
        Field::String | Field::Salt => drop(take_string(rest)?),
        Field::StringMaybe if rest.is_empty() => {}
        Field::StringMaybe => drop(take_string(rest)?),
        Field::Hash => {
            if take_string(rest)?.is_empty() {
                return Err(fault("no octet", "1 to 255 octets"));
            }
        }
        Field::Tag => check_tag(take_string(rest)?)?,
        Field::Strings => {
            take_string(rest)?;
            while !rest.is_empty() {
                take_string(rest)?;
            }
        }
        Field::Types => take_types(rest)?,
        // A CAA value may be empty; digests and keys may not.
        Field::Text | Field::Opaque => *rest = &[],
        Field::Hex | Field::Base64 | Field::Nsap => {
            take(rest, 1)?;
            *rest = &[];
        }
        Field::SvcParams => {
            svcb::check(rest)?;
            *rest = &[];
        }
        Field::Location => {
            let data = take(rest, 16)?;
            if data[0] != 0 {
                return Err(fault(format!("version {}", data[0]), "version 0 (RFC 1876, 2)"));
            }
        }
        Field::Prefixes => {
            while !rest.is_empty() {
                take_prefix(rest)?;
            }
        }
        Field::IpsecGateway => {
            let kind = take(rest, 2)?[0];
            take_gateway(kind, rest)?;
            *rest = &[];
        }
        Field::RelayTail => {
            let kind = take_u8(rest)? & 0x7f;
            take_gateway(kind, rest)?;
        }
        Field::HostIdentity => take_host_identity(rest)?,
    }
    Ok(())
}

fn take_gateway(kind: u8, rest: &mut &[u8]) -> Outcome<()> {
    if kind > 3 {
        return Err(fault(format!("gateway type {kind}"), "0 to 3"));
    }
    match gateway_len(kind) {
        Some(len) => take(rest, len).map(drop),
        None => take_name(rest),
    }
}

fn take_host_identity(rest: &mut &[u8]) -> Outcome<()> {
    let head = take(rest, 4)?;
    take(rest, head[0].into())?;
    take(rest, u16::from_be_bytes([head[2], head[3]]).into())?;
    while !rest.is_empty() {
        take_name(rest)?;
    }
    Ok(())
}

/// RFC 3123, 4: the address part has no trailing zero octet.
fn take_prefix(rest: &mut &[u8]) -> Outcome<()> {
    let head = take(rest, 4)?;
    let address = take(rest, usize::from(head[3] & 0x7f))?;
    let (bits, len) = match (head[0], head[1]) {
        (0, 1) => (32, 4),
        (0, 2) => (128, 16),
        _ => (255, 127),
    };
    if head[2] > bits || address.len() > len || address.last() == Some(&0) {
        return Err(fault(
            format!("the prefix {}", show(address)),
            "a prefix as RFC 3123, 4 has it",
        ));
    }
    Ok(())
}

/// RFC 4034, 4.1.2: windows ascend, have 1 to 32 octets and no trailing zero.
fn take_types(rest: &mut &[u8]) -> Outcome<()> {
    let mut last: Option<u8> = None;
    while !rest.is_empty() {
        let window = take_u8(rest)?;
        let bits = take_string(rest)?;
        if last >= Some(window) || bits.is_empty() || bits.len() > 32 || bits.last() == Some(&0) {
            let what = format!("a wrong bitmap window {window}");
            return Err(fault(what, "ascending windows of 1 to 32 octets without a trailing zero"));
        }
        last = Some(window);
    }
    Ok(())
}
