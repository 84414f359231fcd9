//! The one error type: what went wrong, in words, and what the wire says of it.

use crate::json::write_str;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A cause that a caller can act on. Each variant fixes the HTTP status and the `type` of the OpenAI envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The body is not what the route's schema asks for (vLLM: a pydantic validation error).
    #[error("{message}")]
    Schema { message: String, param: Option<String> },
    /// The request is well formed, but what it asks for cannot be done.
    #[error("{message}")]
    BadRequest { message: String, param: Option<String> },
    #[error("{message}")]
    NotFound { message: String, param: Option<String> },
    #[error("{message}")]
    Unprocessable { message: String, param: Option<String> },
    #[error("{message}")]
    NotImplemented { message: String },
    /// A chat template that cannot be compiled or that failed while rendering.
    #[error("{message}")]
    Template { message: String },
    /// A model folder or setting that the renderer cannot be built from. Never seen by a client.
    #[error("{message}")]
    Setup { message: String },
    /// A fault of ours.
    #[error("{message}")]
    Internal { message: String },
}

impl Error {
    pub fn schema(param: impl Into<String>, message: impl Into<String>) -> Self {
        Error::Schema { message: message.into(), param: Some(param.into()) }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Error::BadRequest { message: message.into(), param: None }
    }

    pub fn bad_param(param: impl Into<String>, message: impl Into<String>) -> Self {
        Error::BadRequest { message: message.into(), param: Some(param.into()) }
    }

    pub fn template(message: impl Into<String>) -> Self {
        let message: String = message.into();
        Error::Template { message: if message.len() > MAX_SHOWN { shortened(&message).to_owned() } else { message } }
    }

    pub fn setup(message: impl Into<String>) -> Self {
        Error::Setup { message: message.into() }
    }

    pub fn status(&self) -> u16 {
        match self {
            Error::Schema { .. } | Error::BadRequest { .. } | Error::Template { .. } => 400,
            Error::NotFound { .. } => 404,
            Error::Unprocessable { .. } => 422,
            Error::NotImplemented { .. } => 501,
            Error::Setup { .. } | Error::Internal { .. } => 500,
        }
    }

    /// The envelope's `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Schema { .. } => "Bad Request",
            Error::BadRequest { .. } | Error::Template { .. } => "BadRequestError",
            Error::NotFound { .. } => "NotFoundError",
            Error::Unprocessable { .. } => "UnprocessableEntityError",
            Error::NotImplemented { .. } => "NotImplementedError",
            Error::Setup { .. } | Error::Internal { .. } => "InternalServerError",
        }
    }

    pub fn param(&self) -> Option<&str> {
        match self {
            Error::Schema { param, .. }
            | Error::BadRequest { param, .. }
            | Error::NotFound { param, .. }
            | Error::Unprocessable { param, .. } => param.as_deref(),
            _ => None,
        }
    }

    /// The response body: `{"error":{"message","type","param","code"}}`.
    pub fn envelope(&self) -> Vec<u8> {
        envelope(&self.to_string(), self.kind(), self.param(), self.status())
    }
}

/// The longest text that an answer says of an error, in bytes.
const MAX_SHOWN: usize = 2000;

/// The beginning of a text, as long as an error may be: a request can put anything into one.
pub(crate) fn shortened(text: &str) -> &str {
    let end = (0..=text.len().min(MAX_SHOWN)).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The OpenAI error envelope, keys in the order that vLLM writes them.
pub fn envelope(message: &str, kind: &str, param: Option<&str>, code: u16) -> Vec<u8> {
    let message = shortened(message);
    let param = param.map(shortened);
    let mut out = Vec::with_capacity(message.len() + 96);
    out.extend_from_slice(b"{\"error\":{\"message\":");
    write_str(&mut out, message);
    out.extend_from_slice(b",\"type\":");
    write_str(&mut out, kind);
    out.extend_from_slice(b",\"param\":");
    match param {
        Some(param) => write_str(&mut out, param),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"code\":");
    out.extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
    out.extend_from_slice(b"}}");
    out
}
