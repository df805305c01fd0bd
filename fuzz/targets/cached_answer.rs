#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::cached_answer(data));
