//! Any bytes as a state, and any text behind it: refused or gone on with, never a panic.
#![no_main]

mod formats;

use fastrender_core::parser::{Deltas, Piece};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u8, u8, u8, &str, &str, &[u8], &str)| {
    let (tool, reasoning, choice, before, old, new, behind) = data;
    let parser = formats::parser(tool, reasoning, false);
    let request = formats::request(choice);
    let mut deltas = Deltas::default();
    let mut state = parser.start(&request);
    let _ = parser.push(&mut state, &request, [Piece::Text(before)], &mut deltas);
    // A state of ours with a part replaced gets further than bytes of any kind.
    let saved = state.save();
    let place = (!old.is_empty()).then(|| saved.windows(old.len()).position(|part| part == old.as_bytes())).flatten();
    let forged = match place {
        Some(at) => [&saved[..at], new, &saved[at + old.len()..]].concat(),
        None => new.to_vec(),
    };
    for bytes in [&forged[..], &saved] {
        let Ok(mut state) = parser.load(bytes) else { continue };
        let _ = parser.push(&mut state, &request, [Piece::Text(behind)], &mut deltas);
        let _ = parser.finish(&mut state, &request, &mut deltas);
    }
});
