//! Chat templates: what one rendering costs, from parsed JSON to text.
//!
//! The baseline is transformers' `apply_chat_template`; `tests/golden/generate_templates.py` sets up the same Jinja2.

use std::fmt::Write;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fastrender_core::json::{Json, Map};
use fastrender_core::template::{ChatTemplate, Limits, RenderInput};

const LIMITS: Limits = Limits { fuel: 50_000_000, output_bytes: 64 << 20, made_bytes: 1 << 30 };

const PLAIN: &str = "{%- for message in messages -%}
<|start|>{{ message.role }}
{{ message.content }}<|end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|start|>assistant
{% endif -%}";

const THINKING: &str = "{%- if tools %}
<|start|>system
{%- if messages[0].role == 'system' %}
{{- messages[0].content + '\\n\\n' }}
{%- endif %}
Functions:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
<|end|>
{%- endif %}
{%- set ns = namespace(last_user=-1) %}
{%- for message in messages %}
{%- if message.role == 'user' and message.content is string %}{% set ns.last_user = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
{%- set content = message.content if message.content is string else '' %}
{%- if message.role == 'assistant' %}
{%- if '</think>' in content and loop.index0 < ns.last_user %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|start|>assistant\\n' + content }}
{%- if message.tool_calls %}
{%- for call in message.tool_calls %}
{{- '\\n<call>{\"name\": ' }}{{ call.function.name | tojson }}, \"arguments\": {{ call.function.arguments | tojson }}}</call>
{%- endfor %}
{%- endif %}
{{- '<|end|>\\n' }}
{%- elif not (loop.first and message.role == 'system' and tools) %}
{{- '<|start|>' + message.role + '\\n' + content + '<|end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start|>assistant\\n' }}
{%- endif %}
";

fn conversation(turns: usize, words: usize) -> String {
    let mut out = String::from(r#"[{"role": "system", "content": "Answer briefly."}"#);
    for turn in 0..turns {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        let text = "the quick brown fox ".repeat(words / 4);
        write!(out, r#", {{"role": "{role}", "content": "{turn} {text}"}}"#).expect("a string takes all");
    }
    out + "]"
}

fn tools(count: usize) -> String {
    let tool = |number: usize| {
        format!(
            r#"{{"type": "function", "function": {{"name": "tool_{number}", "description": "Look up number {number}
            in the register and give what is known of it.", "parameters": {{"type": "object", "properties": {{
            "key": {{"type": "string", "description": "What to look for"}}, "limit": {{"type": "integer"}},
            "order": {{"type": "string", "enum": ["up", "down"]}}}}, "required": ["key"]}}}}}}"#
        )
    };
    let all: Vec<String> = (0..count).map(|number| tool(number).replace('\n', " ")).collect();
    format!("[{}]", all.join(","))
}

fn bench(criterion: &mut Criterion, name: &str, source: &str, messages: &str, tools: Option<&str>) {
    let template = ChatTemplate::new(source, &Map::new(), LIMITS).expect("the template compiles");
    let messages = Json::parse(messages).expect("it is JSON");
    let tools = tools.map(|tools| Json::parse(tools).expect("it is JSON"));
    let kwargs = Map::new();
    let input = RenderInput {
        messages: messages.as_array().expect("it is a list"),
        tools: tools.as_ref(),
        documents: None,
        add_generation_prompt: true,
        continue_final_message: false,
        kwargs: &kwargs,
        now: None,
    };
    let text = template.render(&input).expect("it renders");
    assert!(text.contains("<|end|>"), "{name} renders what it is to render");
    let mut group = criterion.benchmark_group("template");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function(name, |bencher| bencher.iter(|| template.render(black_box(&input))));
    group.finish();
}

fn templates(criterion: &mut Criterion) {
    bench(criterion, "plain, 1 turn", PLAIN, &conversation(1, 20), None);
    bench(criterion, "plain, 20 turns", PLAIN, &conversation(20, 20), None);
    bench(criterion, "plain, 20 turns, 100 kB", PLAIN, &conversation(20, 1000), None);
    bench(criterion, "thinking, 20 turns", THINKING, &conversation(20, 20), None);
    bench(criterion, "thinking, 1 turn, 16 tools", THINKING, &conversation(1, 20), Some(&tools(16)));
    bench(criterion, "thinking, 2000 turns, 200 tools", THINKING, &conversation(2000, 20), Some(&tools(200)));
    criterion.bench_function("template/compile", |bencher| {
        bencher.iter(|| ChatTemplate::new(black_box(THINKING), &Map::new(), LIMITS));
    });
}

criterion_group!(benches, templates);
criterion_main!(benches);
