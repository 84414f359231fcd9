//! `auto`: which formats a model writes, by its architecture and by what its chat template spells.
//!
//! An exact table: the first row whose architecture is the model's and whose texts are all in its template.

/// A row: architectures, texts of the template, tool format, reasoning format.
type Row = (&'static [&'static str], &'static [&'static str], Option<&'static str>, Option<&'static str>);

const QWEN: &[&str] = &[
    "Qwen2ForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
];
const QWEN35: &[&str] = &[
    "Qwen3_5ForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
];
const DEEPSEEK: &[&str] = &["DeepseekV3ForCausalLM"];
const DISTILLED: &[&str] = &["LlamaForCausalLM", "Qwen2ForCausalLM"];
const MISTRAL: &[&str] = &[
    "MistralForCausalLM",
    "MixtralForCausalLM",
    "Ministral3ForCausalLM",
    "Mistral3ForConditionalGeneration",
    "MistralLarge3ForCausalLM",
    "PixtralForConditionalGeneration",
];
const GLM: &[&str] = &[
    "Glm4MoeForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "Glm4vMoeForConditionalGeneration",
    "GlmMoeDsaForCausalLM",
    "Glm5NextForCausalLM",
    "Glm5NextForConditionalGeneration",
];
const GRANITE: &[&str] = &["GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"];
const GEMMA4: &[&str] =
    &["Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"];
const ERNIE: &[&str] = &["Ernie4_5ForCausalLM", "Ernie4_5_MoeForCausalLM"];

const TABLE: &[Row] = &[
    (DISTILLED, &["<｜Assistant｜>", "<think>"], None, Some("deepseek_r1")),
    (QWEN35, &["<function="], Some("qwen3_coder"), Some("qwen3")),
    (QWEN, &["<function=", "<think>"], Some("qwen3_coder"), Some("qwen3")),
    (QWEN, &["<function="], Some("qwen3_coder"), None),
    (QWEN, &["<tool_call>", "<think>"], Some("hermes"), Some("qwen3")),
    (QWEN, &["<tool_call>"], Some("hermes"), None),
    (QWEN, &["<think>"], None, Some("qwen3")),
    (&["LlamaForCausalLM"], &["Environment: ipython"], Some("llama3_json"), None),
    (&["MllamaForConditionalGeneration"], &["Environment: ipython"], Some("llama3_json"), None),
    (&["Llama4ForCausalLM", "Llama4ForConditionalGeneration"], &["[func_name1("], Some("llama4_pythonic"), None),
    (&["Llama4ForCausalLM", "Llama4ForConditionalGeneration"], &["ipython"], Some("llama4_json"), None),
    (MISTRAL, &["[TOOL_CALLS]", "[THINK]"], Some("mistral"), Some("mistral")),
    (MISTRAL, &["[TOOL_CALLS]"], Some("mistral"), None),
    (DEEPSEEK, &["<|tool_calls_section_begin|>", "<think>"], Some("kimi_k2"), Some("kimi_k2")),
    (DEEPSEEK, &["<|tool_calls_section_begin|>"], Some("kimi_k2"), None),
    (&["KimiK25ForConditionalGeneration"], &["<|tool_calls_section_begin|>"], Some("kimi_k2"), Some("kimi_k2")),
    (DEEPSEEK, &["<｜tool▁sep｜>", "```json", "<think>"], Some("deepseek_v3"), Some("deepseek_r1")),
    (DEEPSEEK, &["<｜tool▁sep｜>", "```json"], Some("deepseek_v3"), None),
    (DEEPSEEK, &["<｜tool▁sep｜>", "thinking"], Some("deepseek_v31"), Some("deepseek_v3")),
    (&["DeepseekV32ForCausalLM"], &[], Some("deepseek_v32"), Some("deepseek_v3")),
    (&["DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration"], &[], Some("deepseek_v4"), Some("deepseek_v4")),
    (&["DeepseekV41ForCausalLM"], &[], Some("deepseek_v41"), Some("deepseek_v41")),
    (GLM, &["<arg_key>"], Some("glm45"), Some("glm45")),
    (&["BailingMoeV3ForCausalLM"], &["<arg_key>"], Some("ling3"), Some("ling3")),
    (&["GptOssForCausalLM"], &[], Some("openai"), Some("openai_gptoss")),
    (&["MiniMaxM2ForCausalLM"], &["<minimax:tool_call>"], Some("minimax_m2"), Some("minimax_m2")),
    (GEMMA4, &["<|tool_call>"], Some("gemma4"), Some("gemma4")),
    (&["GraniteMoeHybridForCausalLM"], &["<tool_call>"], Some("granite4"), None),
    (GRANITE, &["<|tool_call|>", "thought process"], Some("granite"), Some("granite")),
    (GRANITE, &["<|tool_call|>"], Some("granite"), None),
    (&["Olmo3ForCausalLM"], &["<function_calls>", "<think>"], Some("olmo3"), Some("olmo3")),
    (&["Olmo3ForCausalLM"], &["<function_calls>"], Some("olmo3"), None),
    (&["Lfm2ForCausalLM", "Lfm2MoeForCausalLM"], &["<|tool_call_start|>"], Some("lfm2"), None),
    (&["SeedOssForCausalLM"], &["<seed:tool_call>"], Some("seed_oss"), Some("seed_oss")),
    (&["Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"], &["<function="], Some("step3p5"), Some("step3p5")),
    (&["Step5ForCausalLM", "Step5ForConditionalGeneration"], &["<function="], Some("step5"), Some("step5")),
    (&["Step3TextForCausalLM", "Step3VLForConditionalGeneration"], &[], None, Some("step3")),
    (
        &["MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM"],
        &["<function="],
        Some("mimo"),
        Some("mimo"),
    ),
    (&["LongcatFlashForCausalLM"], &["<longcat_tool_call>"], Some("longcat"), None),
    (&["HunYuanMoEV1ForCausalLM"], &["<tool_calls>"], Some("hunyuan_a13b"), Some("hunyuan_a13b")),
    (&["Phi3ForCausalLM"], &["<|tool|>"], Some("phi4_mini_json"), None),
    (&["JambaForCausalLM"], &["<tool_calls>"], Some("jamba"), None),
    (&["InternLM2ForCausalLM"], &["<|plugin|>"], Some("internlm"), None),
    (ERNIE, &["<tool_call>", "<think>"], Some("ernie45"), Some("ernie45")),
    (&["NemotronHForCausalLM"], &["<function=", "<think>"], Some("qwen3_coder"), Some("nemotron_v3")),
];

/// What `auto` stands for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chosen {
    pub tool_parser: Option<&'static str>,
    pub reasoning_parser: Option<&'static str>,
}

/// The formats of a model; none of either kind that the table does not know for it.
pub fn choose(architectures: &[impl AsRef<str>], template: &str) -> Chosen {
    let fits = |(known, texts, _, _): &&Row| {
        architectures.iter().any(|architecture| known.contains(&architecture.as_ref()))
            && texts.iter().all(|text| template.contains(text))
    };
    let chosen = TABLE.iter().find(fits);
    chosen.map_or(Chosen::default(), |(_, _, tool_parser, reasoning_parser)| Chosen {
        tool_parser: *tool_parser,
        reasoning_parser: *reasoning_parser,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::Parser;

    #[test]
    fn every_name_in_the_table_is_a_format() {
        for (_, _, tool, reasoning) in TABLE {
            assert!(tool.is_none_or(|name| Parser::tool_names().contains(&name)), "{tool:?}");
            assert!(reasoning.is_none_or(|name| Parser::reasoning_names().contains(&name)), "{reasoning:?}");
        }
    }

    #[test]
    fn the_template_decides_between_models_of_one_architecture() {
        for (architecture, template, tool, reasoning) in [
            ("Qwen3MoeForCausalLM", "<tool_call> <think>", Some("hermes"), Some("qwen3")),
            ("Qwen3MoeForCausalLM", "<tool_call><function=", Some("qwen3_coder"), None),
            ("DeepseekV3ForCausalLM", "<|tool_calls_section_begin|>", Some("kimi_k2"), None),
            ("DeepseekV3ForCausalLM", "<｜tool▁sep｜> thinking", Some("deepseek_v31"), Some("deepseek_v3")),
            ("LlamaForCausalLM", "", None, None),
            ("UnknownForCausalLM", "<tool_call>", None, None),
        ] {
            let want = Chosen { tool_parser: tool, reasoning_parser: reasoning };
            assert_eq!(choose(&[architecture], template), want, "{architecture}");
        }
    }
}
