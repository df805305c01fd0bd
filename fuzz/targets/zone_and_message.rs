#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::zone_and_message(data));
