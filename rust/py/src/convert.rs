//! The one door out of Python: run a core function without the GIL, and turn its error into an exception.

use fastrender_core::Error;
use pyo3::marker::Ungil;
use pyo3::prelude::*;

use crate::error::to_py;

/// Run `work` detached from the interpreter, so that other threads go on.
pub(crate) fn detached<T: Ungil + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Ungil + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|error| to_py(py, &error))
}
