//! `parse_case`, `parse_text`: what the parsers make of an answer. And the names of the formats.

use fastrender_core::parser::cases::{CaseDefaults, answer, read};
use fastrender_core::parser::{Parser, ToolFormat, auto};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;

use crate::convert::detached;
use crate::error::to_py;

/// Answer a case: a JSON object with `text` and what it is read with; the answer is JSON too.
#[pyfunction]
#[pyo3(signature = (case, *, tool_parser=None, reasoning_parser=None, tool_formats=None))]
pub(crate) fn parse_case(
    py: Python<'_>,
    case: PyBackedStr,
    tool_parser: Option<PyBackedStr>,
    reasoning_parser: Option<PyBackedStr>,
    tool_formats: Option<Vec<String>>,
) -> PyResult<String> {
    detached(py, || {
        let (tool_parser, reasoning_parser) = (tool_parser.as_deref(), reasoning_parser.as_deref());
        let tool_formats = tool_formats.unwrap_or_default();
        answer(&case, &CaseDefaults { tool_parser, reasoning_parser, tool_formats: &tool_formats })
    })
}

/// Read a whole text; the message is JSON: `reasoning`, `content`, `tool_calls`, `finish_reason`.
#[pyfunction]
#[pyo3(signature = (text, *, tool_parser=None, reasoning_parser=None, tool_formats=None))]
pub(crate) fn parse_text(
    py: Python<'_>,
    text: PyBackedStr,
    tool_parser: Option<PyBackedStr>,
    reasoning_parser: Option<PyBackedStr>,
    tool_formats: Option<Vec<String>>,
) -> PyResult<String> {
    detached(py, || {
        let (tool_parser, reasoning_parser) = (tool_parser.as_deref(), reasoning_parser.as_deref());
        let tool_formats = tool_formats.unwrap_or_default();
        read(&text, &CaseDefaults { tool_parser, reasoning_parser, tool_formats: &tool_formats })
    })
}

/// The names of the built-in tool formats and of the reasoning formats.
#[pyfunction]
pub(crate) fn parser_names() -> (Vec<&'static str>, Vec<&'static str>) {
    (Parser::tool_names(), Parser::reasoning_names())
}

/// The names of the formats in a TOML text, which is checked.
#[pyfunction]
pub(crate) fn tool_format_names(py: Python<'_>, toml: &str) -> PyResult<Vec<String>> {
    ToolFormat::from_toml(toml).map(|format| format.names).map_err(|error| to_py(py, &error))
}

/// What `auto` stands for: the tool format and the reasoning format of a model, where the table has one.
#[pyfunction]
pub(crate) fn choose_parsers(
    architectures: Vec<String>,
    template: &str,
) -> (Option<&'static str>, Option<&'static str>) {
    let chosen = auto::choose(&architectures, template);
    (chosen.tool_parser, chosen.reasoning_parser)
}
