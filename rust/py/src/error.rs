//! Exceptions, and the one place where a core error becomes one.

use fastrender_core::Error;
use fastrender_core::error::envelope;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

create_exception!(
    fastrender._native,
    RequestError,
    PyException,
    "A request that cannot be served. `status`, `type`, `param`, `message`, and `body`: the ready OpenAI envelope."
);
create_exception!(
    fastrender._native,
    SetupError,
    PyValueError,
    "A model folder or a setting that no renderer can be built from."
);

pub(crate) fn to_py(py: Python<'_>, error: &Error) -> PyErr {
    if let Error::Setup { .. } = error {
        return SetupError::new_err(error.to_string());
    }
    match request_error(py, &error.to_string(), error.kind(), error.param(), error.status()) {
        Ok(raised) => PyErr::from_value(raised),
        Err(fault) => fault,
    }
}

/// A `RequestError` to raise, with all its attributes.
#[pyfunction]
#[pyo3(signature = (message, r#type, param, code))]
pub(crate) fn request_error<'py>(
    py: Python<'py>,
    message: &str,
    r#type: &str,
    param: Option<&str>,
    code: u16,
) -> PyResult<Bound<'py, PyAny>> {
    let raised = RequestError::new_err(message.to_owned());
    let value = raised.value(py);
    value.setattr("status", code)?;
    value.setattr("type", r#type)?;
    value.setattr("param", param)?;
    value.setattr("message", message)?;
    value.setattr("body", error_envelope(py, message, r#type, param, code))?;
    Ok(value.clone().into_any())
}

/// The OpenAI error envelope as bytes: `{"error":{"message","type","param","code"}}`.
#[pyfunction]
#[pyo3(signature = (message, r#type, param, code))]
pub(crate) fn error_envelope<'py>(
    py: Python<'py>,
    message: &str,
    r#type: &str,
    param: Option<&str>,
    code: u16,
) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &envelope(message, r#type, param, code))
}
