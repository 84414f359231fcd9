//! `read_plain_request`: the head of most requests, read in one call.

use fastrender_core::plain_request;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Target, authorization, request id and body of a request.
type Parts<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyAny>>, Bound<'py, PyBytes>);

/// Read `data` as one whole, plain POST of JSON: target, authorization, request id and body; `None` for any other.
#[pyfunction]
pub(crate) fn read_plain_request<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Option<Parts<'py>>> {
    let Some(request) = plain_request::read_plain_request(data) else { return Ok(None) };
    Ok(Some((
        request.target.into_pyobject(py)?.into_any(),
        request.authorization.map(|value| PyBytes::new(py, value)),
        request.request_id.map(|id| id.into_pyobject(py)).transpose()?.map(Bound::into_any),
        PyBytes::new(py, request.body),
    )))
}
