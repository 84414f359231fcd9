//! Large buffers to Python without a copy.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// Smaller ones are copied: a view of a buffer costs more than that.
const COPIED_BYTES: usize = 256 << 10;

/// Bytes that Python sees through the buffer protocol.
#[pyclass(frozen, module = "fastrender._native")]
struct Buffer(Vec<u8>);

#[pymethods]
impl Buffer {
    #[expect(unsafe_code, reason = "the buffer protocol hands out a pointer")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = &slf.get().0;
        let length = isize::try_from(bytes.len()).map_err(|_| PyBufferError::new_err("the buffer is too long"))?;
        let data = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the view holds a reference to `slf`, which is frozen, so that the bytes stay where and what they are.
        if unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, length, 1, flags) } == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }
}

/// `bytes`, or a read-only memoryview if there are many of them.
pub(crate) fn into_python(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Bound<'_, PyAny>> {
    if bytes.len() < COPIED_BYTES {
        return Ok(PyBytes::new(py, &bytes).into_any());
    }
    let buffer = Bound::new(py, Buffer(bytes))?;
    Ok(PyMemoryView::from(buffer.as_any())?.into_any())
}
