//! Compiles the `.proto` files with protox (no `protoc` needed) into messages, client and server.

use std::path::PathBuf;

use protox::prost::Message as _;

const PROTO: &str = "holdfast/v1/librarian.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile([PROTO], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("holdfast.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Record bytes share the buffer they arrived in.
        .bytes(".")
        .codec_path("crate::codec::Protobuf")
        .compile_fds(descriptors)?;
    Ok(())
}
