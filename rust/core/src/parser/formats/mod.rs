//! The built-in formats: a file each, in `tools/` and `reasoning/`.

use std::sync::LazyLock;

use super::engine::unknown;
use super::format::ToolFormat;
use super::reasoning_format::ReasoningFormat;
use crate::error::Result;

macro_rules! files {
    ($folder:literal: $($name:literal)*) => {
        [$(include_str!(concat!($folder, "/", $name, ".toml"))),*]
    };
}

static TOOLS: LazyLock<Vec<ToolFormat>> = LazyLock::new(|| {
    let files = files!("tools":
        "hermes" "qwen3_coder" "llama3_json" "mistral" "mistral_list" "deepseek_v3" "deepseek_v31" "deepseek_v32"
        "deepseek_v4" "deepseek_v41" "glm45" "ling3" "kimi_k2" "openai" "minimax_m2" "gemma4" "granite" "granite4" "pythonic"
        "llama4_pythonic" "olmo3" "lfm2" "seed_oss" "step3p5" "step5" "mimo" "longcat" "hunyuan_a13b"
        "phi4_mini_json" "jamba" "internlm" "xlam" "ernie45"
    );
    files.iter().map(|text| ToolFormat::from_toml(text).expect("the built-in formats are sound")).collect()
});

static REASONING: LazyLock<Vec<ReasoningFormat>> = LazyLock::new(|| {
    let files = files!("reasoning":
        "qwen3" "deepseek_r1" "deepseek_v3" "deepseek_v4" "deepseek_v41" "glm45" "kimi_k2" "openai_gptoss" "minimax_m2"
        "minimax_m2_append_think" "gemma4" "mistral" "nemotron_v3" "granite" "step3" "step3p5" "mimo" "seed_oss"
        "olmo3" "ernie45" "hunyuan_a13b" "holo2"
    );
    files.iter().map(|text| ReasoningFormat::from_toml(text).expect("the built-in formats are sound")).collect()
});

/// The tool format of this name; of several the one that fits the tokenizer.
pub(super) fn tool_format(name: &str, own: &[ToolFormat], has_token: &dyn Fn(&str) -> bool) -> Result<ToolFormat> {
    let named = |format: &&ToolFormat| format.names.iter().any(|known| known == name);
    let fits = |format: &&ToolFormat| {
        format.with_token.as_ref().is_none_or(|token| has_token(token))
            && format.without_token.as_ref().is_none_or(|token| !has_token(token))
    };
    let mut formats = own.iter().chain(TOOLS.iter());
    formats.find(|format| named(format) && fits(format)).cloned().ok_or_else(|| {
        let own = own.iter().flat_map(|format| &format.names).map(String::as_str);
        let known: Vec<&str> = own.chain(tool_names()).collect();
        unknown("tool", name, &known)
    })
}

pub(super) fn reasoning_format(name: &str) -> Result<ReasoningFormat> {
    let named = |format: &&ReasoningFormat| format.names.iter().any(|known| known == name);
    REASONING.iter().find(named).cloned().ok_or_else(|| unknown("reasoning", name, &reasoning_names()))
}

pub(super) fn tool_names() -> Vec<&'static str> {
    distinct(TOOLS.iter().flat_map(|format| &format.names))
}

pub(super) fn reasoning_names() -> Vec<&'static str> {
    distinct(REASONING.iter().flat_map(|format| &format.names))
}

fn distinct(names: impl Iterator<Item = &'static String>) -> Vec<&'static str> {
    let mut out: Vec<&'static str> = names.map(String::as_str).collect();
    out.sort_unstable();
    out.dedup();
    out
}
