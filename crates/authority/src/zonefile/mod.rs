//! Zone files (RFC 1035, section 5) to records.
