//! `continue_final_message`: the prompt ends where the last message does, so that the model goes on with it.

use minijinja::Value;

use super::methods::is_space;
use super::value;
use crate::error::{Error, Result};
use crate::json::{Json, Map};

/// Marks the end of the message while the template renders. The text is transformers', as templates can see it.
const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG";

/// The message that is continued.
pub(super) struct Continuation {
    text: String,
}

impl Continuation {
    /// The last message with the mark at the end of its text.
    pub(super) fn begin(message: &Json<'_>, template_knows_content: bool) -> Result<(Value, Self)> {
        let content = message.as_object().and_then(|message| message.present("content"));
        let (Some(object), Some(content)) = (message.as_object(), content) else {
            return Err(Error::bad_request("the final message has no content to continue"));
        };
        if !template_knows_content {
            return Err(Error::bad_request("the chat template does not use the content of messages"));
        }
        let mut message = object.clone();
        let text = match content {
            Json::Str(text) => {
                message.insert("content", marked(text));
                text.to_string()
            }
            Json::Array(parts) => {
                let mut parts = parts.clone();
                let part = parts.iter_mut().rev().find_map(|part| match part {
                    Json::Object(part) if part.contains_key("text") => Some(part),
                    _ => None,
                });
                let text = part.and_then(mark_part);
                let text = text.ok_or_else(|| Error::bad_request("the final message has no text to continue"))?;
                message.insert("content", Json::Array(parts));
                text
            }
            _ => return Err(Error::bad_request("the content of the final message is not text")),
        };
        Ok((Value::from_object(value::dict_from_json(&message)), Self { text }))
    }

    /// Cut the rendered text where the mark stands.
    pub(super) fn finish(self, mut rendered: String) -> Result<String> {
        let place = rendered.rfind(MARK).filter(|_| rendered.contains(self.text.trim_matches(is_space)));
        let Some(place) = place else {
            return Err(Error::bad_request(
                "the final message cannot be continued: the chat template does not show it unchanged",
            ));
        };
        let spaced = rendered[place + MARK.len()..].starts_with(' ');
        rendered.truncate(place);
        if !spaced {
            // The template trims the message, so what stood before the mark is trimmed too.
            rendered.truncate(rendered.trim_end_matches(is_space).len());
        }
        Ok(rendered)
    }
}

fn marked(text: &str) -> Json<'static> {
    Json::from(format!("{text}{MARK} "))
}

fn mark_part(part: &mut Map<'_>) -> Option<String> {
    let text = part.get("text")?.as_str()?.to_owned();
    part.insert("text", marked(&text));
    Some(text)
}
