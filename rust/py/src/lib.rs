//! `fastrender._native`: the list of what Python sees. Each file converts; the work is in `fastrender_core`.

#![expect(clippy::needless_pass_by_value, reason = "pyo3 hands arguments over by value")]

mod convert;
mod derender;
mod error;
mod item;
mod media;
mod memory;
mod parser;
mod plain_request;
mod renderer;
mod template;
mod tokenizer;

#[pyo3::pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::derender::DerenderStream;
    #[pymodule_export]
    use super::error::{RequestError, SetupError, error_envelope, request_error};
    #[pymodule_export]
    use super::item::decode_item;
    #[pymodule_export]
    use super::media::{Image, ImageProcessor, MediaHasher, MediaReference, Pending};
    #[pymodule_export]
    use super::parser::{choose_parsers, parse_case, parse_text, parser_names, tool_format_names};
    #[pymodule_export]
    use super::plain_request::read_plain_request;
    #[pymodule_export]
    use super::renderer::Renderer;

    #[pymodule_export]
    use super::template::{ChatTemplate, TemplateError};

    #[pymodule_export]
    use super::tokenizer::Tokenizer;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
