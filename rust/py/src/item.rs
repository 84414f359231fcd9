//! `decode_item`: the tensors of one medium, as an engine takes them from a request.

use fastrender_core::wire::base64::{self, Wrapping};
use fastrender_core::wire::{Data, Item};
use fastrender_core::{Error, Result};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::convert::detached;

/// Read one string of `kwargs_data` or `mm_metadata`: a dict from names to numbers, None, lists of those, and tensors,
/// which are `(dtype, shape, bytes)`. A 400 for whatever is none.
#[pyfunction]
pub(crate) fn decode_item(py: Python<'_>, text: PyBackedStr) -> PyResult<Bound<'_, PyDict>> {
    let mut bytes = Vec::new();
    let item = {
        let bytes = &mut bytes;
        detached(py, move || read(&text, bytes))?
    };
    let fields = PyDict::new(py);
    for element in &item.elements {
        fields.set_item(&*element.name, to_python(py, &element.data)?)?;
    }
    Ok(fields)
}

fn read<'b>(text: &str, bytes: &'b mut Vec<u8>) -> Result<Item<'b>> {
    base64::decode(text.as_bytes(), Wrapping::Refused, bytes)
        .map_err(|_| Error::bad_request("an item of `features` is not base64"))?;
    Item::parse(bytes)
}

fn to_python<'py>(py: Python<'py>, data: &Data<'_>) -> PyResult<Bound<'py, PyAny>> {
    match data {
        Data::Nil => Ok(py.None().into_bound(py)),
        Data::Int(value) => value.into_bound_py_any(py),
        Data::Uint(value) => value.into_bound_py_any(py),
        Data::Float(value) => value.into_bound_py_any(py),
        Data::Tensor(tensor) => {
            let bytes = PyBytes::new(py, &tensor.bytes);
            (&*tensor.dtype, PyTuple::new(py, &tensor.shape)?, bytes).into_bound_py_any(py)
        }
        Data::List(list) => {
            let items: Vec<_> = list.iter().map(|data| to_python(py, data)).collect::<PyResult<_>>()?;
            PyList::new(py, items)?.into_bound_py_any(py)
        }
    }
}
