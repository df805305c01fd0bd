#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::allocator_state(data));
