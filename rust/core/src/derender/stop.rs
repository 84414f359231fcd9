//! The token that ended an output.

use super::Derenderer;
use super::request::{Asked, Choice, StopReason};

/// An output without the token that ended it.
pub(super) struct Stopped<'c> {
    /// The ids that are text.
    pub(super) ids: &'c [u32],
    pub(super) reason: StopReason<'c>,
}

impl Derenderer {
    /// Leave out the token that ended generation, as an engine does unless the request asks for it.
    ///
    /// An engine names it, or does not if it is the tokenizer's own; older ones never do. Then, and where an answer does
    /// not say why it ended, the last id is held against the tokens that end outputs.
    pub(super) fn stopped<'c>(&self, choice: &'c Choice<'c>, asked: &Asked<'_>) -> Stopped<'c> {
        let sampling = asked.sampling();
        let (ids, mut reason) = (choice.ids(), choice.stop_reason);
        let kept = Stopped { ids, reason };
        let Some((&last, text)) = ids.split_last().filter(|_| choice.finish_reason == Some("stop")) else {
            return kept;
        };
        let stopped = match reason {
            StopReason::Text(_) => return kept,
            StopReason::Token(token) => token == i128::from(last),
            StopReason::None => {
                let honours_eos = sampling.is_none_or(|sampling| !sampling.ignore_eos);
                let asked_for = || sampling.is_some_and(|sampling| sampling.stop_token_ids.contains(&i128::from(last)));
                if honours_eos && self.eos == Some(last) {
                    true
                } else if asked_for() || (honours_eos && self.eos_ids.contains(&last)) {
                    reason = StopReason::Token(i128::from(last));
                    true
                } else {
                    false
                }
            }
        };
        let included = sampling.is_some_and(|sampling| sampling.include_stop_str_in_output);
        Stopped { ids: if stopped && !included { text } else { ids }, reason }
    }
}
