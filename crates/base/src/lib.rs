//! Small values every room shares.
#![forbid(unsafe_code)]
