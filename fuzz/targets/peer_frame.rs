#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::peer_frame(data));
