//! What a renderer is built from: one value that describes a model folder and the settings that rendering needs.
//!
//! Python decides all of it (`fastrender.model_folder`, `fastrender.config`) and hands it over as JSON once, at
//! start. Nothing here is read from a request.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::template::Timestamp;

/// How message content reaches a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentFormat {
    /// Decided from the template's source.
    #[default]
    Auto,
    /// One string, parts joined by newlines.
    String,
    /// A list of typed parts.
    OpenAi,
}

/// What `bytes` of a logprob are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogprobBytes {
    /// The token's own.
    #[default]
    Raw,
    /// Those of the token's text, as the reference has it.
    Text,
}

/// What a stream's client carries from chunk to chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DerenderState {
    /// All output so far, which a stock vLLM can go on with, and the parse itself.
    #[default]
    Compat,
    /// The parse alone.
    Compact,
    /// What a stock vLLM sends; parses are kept here, as far as there is room.
    Cache,
}

/// A model folder and the settings that bear on rendering.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenderSpec {
    pub model: ModelSpec,
    #[serde(default)]
    pub settings: RenderSettings,
}

/// What a model folder means.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// The literal `--model` string: part of media hashes and `root` in `/v1/models`.
    pub name: String,
    /// Names that requests may use; the first is the default.
    pub served_names: Vec<String>,
    /// Tokens of prompt and output together.
    pub max_model_len: u32,
    /// `vocab_size` of config.json (of its text config), if it says.
    #[serde(default)]
    pub vocab_size: Option<u32>,
    /// `model_type` of config.json.
    #[serde(default)]
    pub model_type: String,
    /// Special tokens that a template sees (`bos_token`, …), in the tokenizer's order.
    #[serde(default)]
    pub special_tokens: Map<String, Value>,
    /// The tokenizer's own chat templates by name (`default`, `tool_use`, …).
    #[serde(default)]
    pub chat_templates: Map<String, Value>,
    /// The processor's chat template; vLLM prefers it when a request has no tools.
    #[serde(default)]
    pub processor_chat_template: Option<String>,
    /// Defaults for sampling: the model's generation config and `--override-generation-config`, already reduced to
    /// the keys that vLLM honours (`temperature`, `top_p`, `top_k`, `min_p`, the penalties, `max_tokens`,
    /// `skip_special_tokens`).
    #[serde(default)]
    pub default_sampling_params: Map<String, Value>,
    /// Tokens that end an output: the generation config's `eos_token_id`.
    #[serde(default)]
    pub eos_token_ids: Vec<u32>,
    /// A cap on `max_tokens` (from an overridden or explicit generation config).
    #[serde(default)]
    pub max_tokens_cap: Option<u64>,
    /// Text that stands for one medium in a string-format prompt, by modality (`{"image": "<|vision_start|>…"}`).
    /// `{i}` is the 1-based index. A modality that is absent here is not served by this model.
    #[serde(default)]
    pub media_placeholders: Map<String, Value>,
    /// The token in a prompt whose place an image's tokens take, and that they are; for models that take images.
    #[serde(default)]
    pub image_placeholder: Option<String>,
    pub tokenizer: TokenizerSpec,
}

/// How the tokenizer is set up beyond tokenizer.json.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenizerSpec {
    /// Tokens of `tokenizer_config.json`'s `added_tokens_decoder` that `tokenizer.json` may lack.
    pub added_tokens: Vec<AddedTokenSpec>,
    /// `add_bos_token`/`add_eos_token` of `tokenizer_config.json`, where the tokenizer class honours them.
    pub add_bos_token: Option<bool>,
    pub add_eos_token: Option<bool>,
    pub bos_token: Option<String>,
    pub eos_token: Option<String>,
    /// Tokens that `skip_special_tokens` leaves out: those with a name and those listed as special, not all that are
    /// flagged so.
    pub skipped_tokens: Vec<String>,
    /// Set where `AutoTokenizer` ends up with `LlamaTokenizer`, which keeps vocabulary, merges and post-processor of
    /// tokenizer.json but brings its own handling of spaces: `first` unless `tokenizer_config.json` has `legacy: true`
    /// (`always`) or `add_prefix_space: false` (`never`).
    pub llama_prepend: Option<PrependScheme>,
    /// Bytes that the segment cache may hold; 0 turns it off.
    pub cache_bytes: usize,
}

/// Where a text gets a space in front that it did not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrependScheme {
    /// At the beginning of the input, not after an added token.
    First,
    /// At the beginning of the input and after each added token.
    Always,
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of an added token in tokenizer_config.json")]
pub struct AddedTokenSpec {
    pub id: u32,
    pub content: String,
    #[serde(default)]
    pub single_word: bool,
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    #[serde(default)]
    pub normalized: bool,
    #[serde(default)]
    pub special: bool,
}

/// Settings of the server (or library) that bear on rendering; each is declared in `fastrender.config`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct RenderSettings {
    /// `--chat-template`, already read from its file.
    pub chat_template: Option<String>,
    pub chat_template_content_format: ContentFormat,
    pub trust_request_chat_template: bool,
    pub trust_request_mm_kwargs: bool,
    pub default_chat_template_kwargs: Map<String, Value>,
    /// `--cohere-format`, which vLLM always adds to the template's variables.
    pub cohere_format: String,
    pub reasoning_effort_map: Map<String, Value>,
    pub enable_auto_tool_choice: bool,
    pub tool_call_parser: Option<String>,
    /// Tool formats of the operator's own, as TOML.
    pub tool_formats: Vec<String>,
    /// `auto`, `function` or `parameter`: how far calls are held to structural tags. None leaves it to the format.
    pub tool_strict_level: Option<String>,
    /// Bytes of a tool's argument that is held back until it is complete.
    pub tool_value_bytes: usize,
    pub reasoning_parser: Option<String>,
    pub exclude_tools_when_tool_choice_none: bool,
    pub interleave_mm_strings: bool,
    /// Keep what a client wrote from becoming control tokens.
    pub escape_special_tokens: bool,
    /// Items of a modality that one request may carry; absent = 999.
    pub limit_mm_per_prompt: Map<String, Value>,
    pub skip_model_name_validation: bool,
    /// Leave null fields out of answers.
    pub omit_null: bool,
    pub max_n_sequences: u64,
    pub max_completion_prompts: usize,
    pub max_stop_strings: usize,
    /// Alternatives of a token that logprobs may have; below 0 there is no bound.
    pub max_logprobs: i64,
    /// Bytes of a body, and of the text that one may stand for.
    pub max_request_bytes: u64,
    pub logprob_bytes: LogprobBytes,
    pub derender_state: DerenderState,
    /// What `strftime_now` tells instead of the clock's time.
    pub strftime_now: Option<Timestamp>,
    /// Steps that a template may take; 0 = no bound.
    pub template_fuel: u64,
    /// Bytes that a template may print.
    pub template_output_bytes: usize,
}

impl Default for RenderSettings {
    fn default() -> Self {
        Self {
            chat_template: None,
            chat_template_content_format: ContentFormat::Auto,
            trust_request_chat_template: false,
            trust_request_mm_kwargs: false,
            default_chat_template_kwargs: Map::new(),
            cohere_format: "cmd4".to_owned(),
            reasoning_effort_map: Map::new(),
            enable_auto_tool_choice: false,
            tool_call_parser: None,
            tool_formats: Vec::new(),
            tool_strict_level: None,
            tool_value_bytes: 64 << 10,
            reasoning_parser: None,
            exclude_tools_when_tool_choice_none: false,
            interleave_mm_strings: false,
            escape_special_tokens: false,
            limit_mm_per_prompt: Map::new(),
            skip_model_name_validation: false,
            omit_null: false,
            max_n_sequences: 16_384,
            max_completion_prompts: 1_024,
            max_stop_strings: 4,
            max_logprobs: 20,
            max_request_bytes: 64 << 20,
            logprob_bytes: LogprobBytes::Raw,
            derender_state: DerenderState::Compat,
            strftime_now: None,
            template_fuel: 50_000_000,
            template_output_bytes: 64 << 20,
        }
    }
}
