//! Makes Rust of the messages between nodes.

use std::error::Error;

const DIRECTORY: &str = "src/peers/proto";
const FILE: &str = "src/peers/proto/peer.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FILE}");
    let files = protox::compile([FILE], [DIRECTORY])?;
    tonic_prost_build::configure()
        // Ours connects by itself: generated code would do without TLS.
        .build_transport(false)
        .bytes(".")
        .compile_fds(files)?;
    Ok(())
}
