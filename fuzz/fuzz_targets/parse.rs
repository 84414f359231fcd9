//! Any text, by any parser: no panic, and the same message at two cuts as at none, the state saved at each.
#![no_main]

mod formats;

use fastrender_core::parser::{Deltas, ParseRequest, Parser, Piece};
use libfuzzer_sys::fuzz_target;

/// Reasoning, content and calls (index, name, arguments), joined.
type Joined = (String, String, Vec<(u32, String, String)>);

fuzz_target!(|data: (u8, u8, u8, bool, u16, u16, &str)| {
    let (tool, reasoning, choice, tokens, first, second, text) = data;
    let parser = formats::parser(tool, reasoning, tokens);
    let request = formats::request(choice);
    let pieces = pieces(text, tokens);
    let at = |number: u16| usize::from(number) % (pieces.len() + 1);
    let (first, second) = (at(first).min(at(second)), at(first).max(at(second)));
    let once = streamed(&parser, &request, &[&pieces]);
    let parts = [&pieces[..first], &pieces[first..second], &pieces[second..]];
    let cut = streamed(&parser, &request, &parts);
    // A value that must be held may be too long in either way of cutting.
    if let (Some(once), Some(cut)) = (once, cut) {
        assert_eq!(once, cut, "{text:?} cut at {first} and {second}");
    }
    let _ = parser.whole(&request, pieces, Some("stop"));
});

fn streamed(parser: &Parser, request: &ParseRequest<'_>, parts: &[&[Piece<'_>]]) -> Option<Joined> {
    let mut state = parser.start(request);
    let mut joined = Joined::default();
    let mut add = |deltas: Deltas| {
        joined.0.push_str(&deltas.reasoning);
        joined.1.push_str(&deltas.content);
        for call in deltas.calls {
            if let Some(name) = call.name {
                joined.2.push((call.index, name, String::new()));
            }
            let last = joined.2.last_mut().expect("arguments come behind a name");
            assert_eq!(last.0, call.index);
            last.2.push_str(&call.arguments.unwrap_or_default());
        }
    };
    for part in parts {
        let mut deltas = Deltas::default();
        parser.push(&mut state, request, part.iter().copied(), &mut deltas).ok()?;
        add(deltas);
        state = parser.load(&state.save()).expect("a state of ours can be used again");
    }
    let mut deltas = Deltas::default();
    parser.finish(&mut state, request, &mut deltas).ok()?;
    add(deltas);
    Some(joined)
}

/// Tokens, and the characters between them.
fn pieces(text: &str, tokens: bool) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let token = formats::TOKENS.iter().find(|token| tokens && rest.starts_with(**token));
        let length = token.map_or(c.len_utf8(), |token| token.len());
        let (piece, behind) = rest.split_at(length);
        pieces.push(match token {
            Some(_) => Piece::Token { text: piece, special: piece.starts_with("<|") },
            None => Piece::Text(piece),
        });
        rest = behind;
    }
    pieces
}
