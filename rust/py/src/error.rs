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
    let message = error.to_string();
    if let Error::Setup { .. } = error {
        return SetupError::new_err(message);
    }
    let raised = RequestError::new_err(message.clone());
    let value = raised.value(py);
    let attributes = || -> PyResult<()> {
        value.setattr("status", error.status())?;
        value.setattr("type", error.kind())?;
        value.setattr("param", error.param())?;
        value.setattr("message", message)?;
        value.setattr("body", PyBytes::new(py, &error.envelope()))
    };
    match attributes() {
        Ok(()) => raised,
        Err(fault) => fault,
    }
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
