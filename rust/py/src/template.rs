//! `ChatTemplate`: a chat template that Python renders conversations with.

use fastrender_core::json::{Json, Map};
use fastrender_core::spec::ContentFormat;
use fastrender_core::template::{self, Limits, RenderInput, Timestamp};
use pyo3::create_exception;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDateAccess, PyDateTime, PyDict, PyTimeAccess};

create_exception!(fastrender._native, TemplateError, PyValueError, "A chat template that does not compile or render.");

/// Bounds for templates that a program chose itself: generous, but they end.
const LIMITS: Limits = Limits { fuel: 200_000_000, output_bytes: 64 << 20, made_bytes: 4 << 30 };

/// A compiled chat template, rendered as transformers renders it.
#[pyclass(frozen, module = "fastrender._native")]
pub(crate) struct ChatTemplate(template::ChatTemplate);

#[pymethods]
impl ChatTemplate {
    #[new]
    #[pyo3(signature = (source, special_tokens=None))]
    fn new(py: Python<'_>, source: &str, special_tokens: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let tokens = special_tokens.map(|tokens| dumps(tokens)).transpose()?;
        py.detach(|| {
            let tokens = tokens.as_deref().map_or(Ok(Map::new()), object)?;
            template::ChatTemplate::new(source, &tokens, LIMITS).map(Self).map_err(failure)
        })
    }

    /// Render a conversation: lists and dicts as `json.dumps` takes them; further keywords become variables.
    #[pyo3(signature = (
        messages, tools=None, documents=None, now=None, add_generation_prompt=false, continue_final_message=false,
        **kwargs,
    ))]
    #[expect(clippy::too_many_arguments, reason = "the parameters of apply_chat_template")]
    fn render(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        tools: Option<&Bound<'_, PyAny>>,
        documents: Option<&Bound<'_, PyAny>>,
        now: Option<&Bound<'_, PyDateTime>>,
        add_generation_prompt: bool,
        continue_final_message: bool,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<String> {
        let messages = dumps(messages)?;
        let tools = tools.map(|tools| dumps(tools)).transpose()?;
        let documents = documents.map(|documents| dumps(documents)).transpose()?;
        let kwargs = kwargs.map(|kwargs| dumps(kwargs)).transpose()?;
        let now = now.map(timestamp);
        py.detach(|| {
            let messages = parse(&messages)?;
            let tools = tools.as_deref().map(parse).transpose()?;
            let documents = documents.as_deref().map(parse).transpose()?;
            let kwargs = kwargs.as_deref().map_or(Ok(Map::new()), object)?;
            let input = RenderInput {
                messages: messages.as_array().ok_or_else(|| PyTypeError::new_err("messages must be a list"))?,
                tools: tools.as_ref(),
                documents: documents.as_ref(),
                add_generation_prompt,
                continue_final_message,
                kwargs: &kwargs,
                now,
            };
            self.0.render(&input).map_err(failure)
        })
    }

    /// How the template wants message content: `openai` (a list of parts) or `string`.
    #[getter]
    fn content_format(&self) -> &'static str {
        if self.0.content_format() == ContentFormat::OpenAi { "openai" } else { "string" }
    }

    /// The variables that the template takes from outside.
    #[getter]
    fn undeclared_variables(&self) -> Vec<&str> {
        self.0.undeclared_variables().collect()
    }
}

fn failure(error: fastrender_core::Error) -> PyErr {
    TemplateError::new_err(error.to_string())
}

fn dumps(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.py().import("json")?.call_method1("dumps", (value,))?.extract()
}

fn parse(text: &str) -> PyResult<Json<'_>> {
    Json::parse(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn object(text: &str) -> PyResult<Map<'_>> {
    match parse(text)? {
        Json::Object(map) => Ok(map),
        _ => Err(PyTypeError::new_err("a mapping is expected")),
    }
}

fn timestamp(now: &Bound<'_, PyDateTime>) -> Timestamp {
    Timestamp {
        year: now.get_year(),
        month: now.get_month(),
        day: now.get_day(),
        hour: now.get_hour(),
        minute: now.get_minute(),
        second: now.get_second(),
        microsecond: now.get_microsecond(),
    }
}
