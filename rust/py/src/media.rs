//! Requests that wait for media, and what becomes of the media.

use std::sync::Arc;

use fastrender_core as core;
use fastrender_core::hash::{Factors, IoConfig, MmHasher};
use fastrender_core::image;
use fastrender_core::json::{Json, Map};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

use crate::convert::detached;
use crate::error::SetupError;
use crate::memory::into_python;
use crate::renderer::Renderer;

/// What a request came as.
pub(crate) struct Request {
    pub(crate) route: core::Route,
    pub(crate) body: PyBackedBytes,
    pub(crate) id: Option<PyBackedStr>,
}

/// A request that waits for its media.
#[pyclass(frozen, module = "fastrender._native")]
pub(crate) struct Pending {
    renderer: Py<Renderer>,
    request: Request,
    inner: core::Pending,
}

/// A medium that a request refers to.
#[pyclass(frozen, get_all, module = "fastrender._native")]
pub(crate) struct MediaReference {
    /// `image`, `audio` or `video`.
    modality: &'static str,
    /// The content part's kind: `image_url`, `input_audio`, ….
    kind: &'static str,
    uuid: Option<String>,
    /// Whether the part names only a uuid.
    is_empty: bool,
}

impl Pending {
    pub(crate) fn new(renderer: Py<Renderer>, request: Request, inner: core::Pending) -> Self {
        Self { renderer, request, inner }
    }

    fn medium(&self, index: usize) -> PyResult<&core::PendingMedia> {
        self.inner.media.get(index).ok_or_else(|| PyValueError::new_err("there is no such medium"))
    }
}

#[pymethods]
impl Pending {
    /// What is needed, in request order.
    #[getter]
    fn media(&self) -> Vec<MediaReference> {
        let reference = |medium: &core::PendingMedia| MediaReference {
            modality: medium.modality.name(),
            kind: medium.kind,
            uuid: medium.uuid.clone(),
            is_empty: medium.source.is_none(),
        };
        self.inner.media.iter().map(reference).collect()
    }

    /// `media_io_kwargs` of the request as JSON, if there are any.
    #[getter]
    fn media_io_kwargs(&self) -> Option<&str> {
        self.inner.options.media_io_kwargs.as_deref()
    }

    /// `mm_processor_kwargs` of the request as JSON, if there are any.
    #[getter]
    fn mm_processor_kwargs(&self) -> Option<&str> {
        self.inner.options.mm_processor_kwargs.as_deref()
    }

    /// Whether the answer is to hold hashes and places alone.
    #[getter]
    fn omits_payload(&self) -> bool {
        self.inner.options.omit_payload
    }

    /// Token ids of the prompt before media take their places.
    #[getter]
    fn prompt_length(&self) -> usize {
        self.inner.prompt_length()
    }

    /// Whether the medium `index` came as a `data:` URL.
    fn is_data(&self, index: usize) -> PyResult<bool> {
        Ok(self.medium(index)?.is_data(&self.request.body))
    }

    /// The bytes of the medium `index`, if it came as a `data:` URL.
    fn data<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let medium = self.medium(index)?;
        let data = detached(py, || medium.data(&self.request.body))?;
        Ok(data.map(|data| PyBytes::new(py, &data)))
    }

    /// The URL of the medium `index`.
    fn url(&self, index: usize) -> PyResult<String> {
        let text = self.medium(index)?.text(&self.request.body).unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// The response, a memoryview if it is long; `ready` has a hash and an image for each of `media`.
    fn finish<'py>(&self, py: Python<'py>, ready: Vec<(PyBackedStr, Py<Image>)>) -> PyResult<Bound<'py, PyAny>> {
        let Request { route, body, id } = &self.request;
        let ready: Vec<core::ReadyMedia<'_>> = ready
            .iter()
            .map(|(hash, image)| {
                let image = image.get();
                core::ReadyMedia { hash, tokens: image.plan.tokens, processed: image.processed.as_deref() }
            })
            .collect();
        let renderer = &self.renderer.get().0;
        let response = detached(py, || renderer.finish(*route, body, id.as_deref(), &self.inner, &ready))?;
        into_python(py, response)
    }
}

/// An image that was processed, or, without its pixels, planned. Shared, never copied.
#[pyclass(frozen, module = "fastrender._native")]
pub(crate) struct Image {
    plan: image::Plan,
    processed: Option<Arc<image::Processed>>,
}

#[pymethods]
impl Image {
    /// Placeholder tokens.
    #[getter]
    fn tokens(&self) -> usize {
        self.plan.tokens
    }

    /// Width and height after resizing.
    #[getter]
    fn size(&self) -> (usize, usize) {
        (self.plan.resized.width, self.plan.resized.height)
    }

    /// Bytes that this holds.
    #[getter]
    fn nbytes(&self) -> usize {
        self.processed.as_ref().map_or(0, |processed| processed.held_bytes())
    }
}

/// Turns RGB pixels into what a model takes.
#[pyclass(frozen, module = "fastrender._native")]
pub(crate) struct ImageProcessor(image::ImageProcessor);

#[pymethods]
impl ImageProcessor {
    /// `spec_json` is an `ImageProcessorSpec` of `fastrender_core::image`.
    #[new]
    fn new(py: Python<'_>, spec_json: PyBackedBytes) -> PyResult<Self> {
        let spec = serde_json::from_slice(&spec_json)
            .map_err(|error| SetupError::new_err(format!("the image processor's spec is malformed: {error}")))?;
        detached(py, || image::ImageProcessor::new(spec)).map(Self)
    }

    /// What becomes of an image of this size; nothing is processed.
    fn plan(&self, py: Python<'_>, width: usize, height: usize) -> PyResult<Image> {
        let plan = detached(py, || self.0.plan(width, height))?;
        Ok(Image { plan, processed: None })
    }

    /// Process `height` rows of `width` pixels of 3 bytes.
    fn process(&self, py: Python<'_>, rgb: PyBackedBytes, width: usize, height: usize) -> PyResult<Image> {
        let processed = detached(py, || self.0.process(&rgb, width, height))?;
        Ok(Image { plan: processed.plan(), processed: Some(Arc::new(processed)) })
    }
}

/// Names media by their content, as vLLM's `MultiModalHasher` does.
#[pyclass(frozen, module = "fastrender._native")]
pub(crate) struct MediaHasher {
    algorithm: MmHasher,
    model_id: String,
}

#[pymethods]
impl MediaHasher {
    /// `algorithm` is `blake3`, `sha256` or `sha512`; `model_id` the literal name of the model.
    #[new]
    fn new(algorithm: &str, model_id: String) -> PyResult<Self> {
        let algorithm = match algorithm {
            "blake3" => MmHasher::Blake3,
            "sha256" => MmHasher::Sha256,
            "sha512" => MmHasher::Sha512,
            other => return Err(SetupError::new_err(format!("unknown hash `{other}`; known: blake3, sha256, sha512"))),
        };
        Ok(Self { algorithm, model_id })
    }

    /// The hash of an encoded image. `io_config` is the mode and the background that changed it, the two `kwargs` are
    /// JSON objects.
    #[pyo3(signature = (data, io_config=None, media_io_kwargs=None, mm_processor_kwargs=None))]
    fn image(
        &self,
        py: Python<'_>,
        data: PyBackedBytes,
        io_config: Option<(PyBackedStr, [u8; 3])>,
        media_io_kwargs: Option<PyBackedStr>,
        mm_processor_kwargs: Option<PyBackedStr>,
    ) -> PyResult<String> {
        detached(py, || {
            let (io, processor) = (object(media_io_kwargs.as_deref())?, object(mm_processor_kwargs.as_deref())?);
            let io_config = io_config
                .as_ref()
                .map(|(mode, background)| IoConfig { image_mode: mode, rgba_background_color: *background });
            self.algorithm.image(&data, io_config, self.factors(io.as_ref(), processor.as_ref()))
        })
    }

    /// The hash of a medium that the client named: the name, unless the request's options bear on it.
    #[pyo3(signature = (modality, uuid, media_io_kwargs=None, mm_processor_kwargs=None))]
    fn uuid(
        &self,
        py: Python<'_>,
        modality: &str,
        uuid: &str,
        media_io_kwargs: Option<PyBackedStr>,
        mm_processor_kwargs: Option<PyBackedStr>,
    ) -> PyResult<String> {
        detached(py, || {
            let (io, processor) = (object(media_io_kwargs.as_deref())?, object(mm_processor_kwargs.as_deref())?);
            self.algorithm.uuid(modality, uuid, self.factors(io.as_ref(), processor.as_ref()))
        })
    }
}

impl MediaHasher {
    fn factors<'a>(&'a self, io: Option<&'a Map<'a>>, processor: Option<&'a Map<'a>>) -> Factors<'a> {
        Factors { model_id: &self.model_id, media_io_kwargs: io, mm_processor_kwargs: processor }
    }
}

fn object(json: Option<&str>) -> core::Result<Option<Map<'_>>> {
    json.map(|json| match Json::parse(json) {
        Ok(Json::Object(map)) => Ok(map),
        _ => Err(core::Error::bad_request("media options must be a JSON object")),
    })
    .transpose()
}
