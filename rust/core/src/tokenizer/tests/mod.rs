//! The fast implementation held against the library: ids, offsets, text and truncation are equal, always.

mod behaviour;
mod equality;
mod shared;
mod small;
mod texts;

use tokenizers::tokenizer::TruncationDirection;
use tokenizers::{TruncationParams, TruncationStrategy};

use super::{Encoding, Tokenizer, Truncation, TruncationSide};
use crate::spec::TokenizerSpec;

/// The library as transformers uses it.
fn oracle(tokenizer_json: &[u8]) -> tokenizers::Tokenizer {
    let mut oracle = tokenizers::Tokenizer::from_bytes(tokenizer_json).unwrap();
    oracle.with_truncation(None).unwrap();
    oracle.with_padding(None);
    oracle
}

fn fast(tokenizer_json: &[u8], cache_bytes: usize) -> Tokenizer {
    let spec = TokenizerSpec { cache_bytes, ..TokenizerSpec::default() };
    let tokenizer = Tokenizer::early(tokenizer_json, &spec).unwrap();
    assert!(tokenizer.backend().starts_with("fast: "), "{}", tokenizer.backend());
    tokenizer
}

/// What differs between our answers for a text and the library's, in words.
fn difference(ours: &Tokenizer, oracle: &tokenizers::Tokenizer, text: &str) -> Option<String> {
    for special in [false, true] {
        let want = oracle.encode_char_offsets(text, special).unwrap();
        let ids = ours.encode(text, special, None).unwrap();
        if ids != want.get_ids() {
            return Some(format!("ids of {text:?}: {ids:?}, not {:?}", want.get_ids()));
        }
        let got = ours.encode_with_offsets(text, special, None).unwrap();
        if got != as_encoding(&want) {
            return Some(format!("offsets of {text:?}: {:?}, not {:?}", got.offsets, want.get_offsets()));
        }
        let (decoded, wanted) = (ours.decode(&ids, special).unwrap(), oracle.decode(&ids, special).unwrap());
        if decoded != wanted {
            return Some(format!("text of {ids:?}: {decoded:?}, not {wanted:?}"));
        }
    }
    None
}

/// As [`difference`], of truncated encodings.
fn truncated_difference(
    ours: &Tokenizer,
    oracle: &tokenizers::Tokenizer,
    text: &str,
    truncation: Truncation,
) -> Option<String> {
    let direction = match truncation.side {
        TruncationSide::Left => TruncationDirection::Left,
        TruncationSide::Right => TruncationDirection::Right,
    };
    let mut bounded = oracle.clone();
    let params = TruncationParams {
        direction,
        max_length: truncation.max_length,
        strategy: TruncationStrategy::LongestFirst,
        stride: 0,
    };
    bounded.with_truncation(Some(params)).unwrap();
    for special in [false, true] {
        let want = as_encoding(&bounded.encode_char_offsets(text, special).unwrap());
        let got = ours.encode_with_offsets(text, special, Some(truncation)).unwrap();
        let ids = ours.encode(text, special, Some(truncation)).unwrap();
        if got != want || ids != want.ids {
            return Some(format!("{truncation:?} of {text:?}: {got:?}, not {want:?}"));
        }
    }
    None
}

fn as_encoding(encoding: &tokenizers::Encoding) -> Encoding {
    let place = |place: usize| u32::try_from(place).unwrap();
    Encoding {
        ids: encoding.get_ids().to_vec(),
        offsets: encoding.get_offsets().iter().map(|&(start, end)| (place(start), place(end))).collect(),
    }
}
