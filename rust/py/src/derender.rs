//! `DerenderStream`: an engine's chunks in, a client's chunks out.

use std::sync::{Arc, Mutex, PoisonError};

use fastrender_core::derender::{Kind, OpenStream, Part};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::convert::detached;
use crate::renderer::Renderer;

/// One streamed answer. Its chunks come one after the other; calls from several threads wait for one another.
#[pyclass(frozen, module = "fastrender._native")]
pub(crate) struct DerenderStream(Mutex<OpenStream>);

#[pymethods]
impl DerenderStream {
    /// `body` is that of a streamed derender request of `route` (`chat_derender`, `completions_derender`) without its
    /// chunk and state.
    #[new]
    fn new(py: Python<'_>, renderer: &Bound<'_, Renderer>, route: &str, body: PyBackedBytes) -> PyResult<Self> {
        let kind = match route {
            "chat_derender" => Kind::Chat,
            "completions_derender" => Kind::Completion,
            other => return Err(PyValueError::new_err(format!("unknown route `{other}`"))),
        };
        let derenderer = Arc::clone(&renderer.get().1);
        let stream = detached(py, || OpenStream::new(&derenderer, kind, &body))?;
        Ok(Self(Mutex::new(stream)))
    }

    /// The client's chunk for one of the engine's, both JSON.
    fn push_chunk<'py>(&self, py: Python<'py>, chunk: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        let answer = detached(py, || self.lock().push_chunk(&chunk))?;
        Ok(PyBytes::new(py, &answer))
    }

    /// The client's chunk for these tokens of a choice, as JSON.
    #[pyo3(signature = (token_ids, *, finish_reason=None, index=0))]
    fn push<'py>(
        &self,
        py: Python<'py>,
        token_ids: Vec<u32>,
        finish_reason: Option<&str>,
        index: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let part = Part { index, token_ids: &token_ids, finish_reason };
        let answer = detached(py, || self.lock().push_part(part))?;
        Ok(PyBytes::new(py, &answer))
    }

    /// The client's chunk for the end of all choices that have not ended; `None` if all have.
    #[pyo3(signature = (finish_reason="stop"))]
    fn finish<'py>(&self, py: Python<'py>, finish_reason: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let answer = detached(py, || self.lock().finish(finish_reason))?;
        Ok(answer.map(|answer| PyBytes::new(py, &answer)))
    }

    /// The chunk that tells how many tokens there were, as JSON.
    fn usage_chunk<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.lock().usage_chunk())
    }

    /// Whether the last chunk tells a client anything.
    #[getter]
    fn tells(&self) -> bool {
        self.lock().tells()
    }

    /// The choices that have met a stop string and not ended.
    fn stopped(&self) -> Vec<i64> {
        self.lock().stopped()
    }

    /// Whether the request asks for that chunk.
    #[getter]
    fn includes_usage(&self) -> bool {
        self.lock().includes_usage()
    }
}

impl DerenderStream {
    fn lock(&self) -> std::sync::MutexGuard<'_, OpenStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
