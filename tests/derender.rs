//! Derendering: whole answers, streams in parts of any size, their states, and what is refused.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use fastrender_core::derender::{Derenderer, Kind, OpenStream, Part};
use fastrender_core::{Effort, Error, Renderer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

/// The tokenizer inside the package: byte-level BPE.
const EMBEDDED: &[u8] = include_bytes!("../python/fastrender/embedded/tokenizer.json");
const STATES: [&str; 3] = ["compat", "compact", "cache"];

struct Server {
    renderer: Renderer,
    derenderer: Arc<Derenderer>,
}

impl Server {
    fn new(settings: &Value) -> Self {
        let model = json!({
            "name": "m", "served_names": ["m"], "max_model_len": 400,
            "tokenizer": {"eos_token": "<|im_end|>", "skipped_tokens": ["<|im_end|>", "<|endoftext|>"]},
            "eos_token_ids": [4096],
            "chat_templates": {"default": "{{ messages[0].content }}"},
        });
        let spec = serde_json::from_value(json!({"model": model, "settings": settings})).unwrap();
        let renderer = Renderer::new(spec, EMBEDDED).unwrap();
        let derenderer = Arc::new(Derenderer::new(&renderer).unwrap());
        Self { renderer, derenderer }
    }

    fn plain() -> Self {
        Self::new(&json!({}))
    }

    fn parsing(state: &str) -> Self {
        Self::new(&json!({
            "enable_auto_tool_choice": true, "tool_call_parser": "hermes", "reasoning_parser": "qwen3",
            "derender_state": state,
        }))
    }

    fn ids(&self, text: &str) -> Vec<u32> {
        self.renderer.tokenizer().encode(text, false, None).unwrap()
    }

    fn post(&self, kind: Kind, body: &Value) -> Result<Value, Error> {
        let answer = self.derenderer.derender(kind, body.to_string().as_bytes(), Effort::Any)?.unwrap();
        Ok(serde_json::from_slice(&answer).unwrap())
    }

    fn whole(&self, ids: &[u32], finish: &str, more: &Value) -> Result<Value, Error> {
        let choice = json!({"index": 0, "token_ids": ids, "finish_reason": finish});
        let body = json!({"generate_response": {"request_id": "r", "choices": [choice]}});
        self.post(Kind::Chat, &merged(body, more))
    }

    /// Chunk by chunk, the state carried along; the joined message and the states.
    fn streamed(&self, parts: &[&[u32]], finish: &str, more: &Value) -> Result<(Message, Vec<Value>), Error> {
        let mut message = Message::default();
        let mut states = vec![Value::Null];
        for (i, part) in parts.iter().enumerate() {
            let finish = (i + 1 == parts.len()).then_some(finish);
            let body = chunk_body(0, part, finish, states.last().unwrap(), more);
            let answer = self.post(Kind::Chat, &body)?;
            let mut again = self.post(Kind::Chat, &body)?;
            again["chunk"]["created"] = answer["chunk"]["created"].clone();
            assert_eq!(again, answer, "a chunk that is sent once more gives the same");
            message.add(&answer["chunk"]["choices"][0]);
            states.push(answer["stream_state"].clone());
        }
        Ok((message, states))
    }

    fn kept(&self, parts: &[&[u32]], finish: &str, more: &Value) -> Message {
        let body = more.to_string();
        let mut stream = OpenStream::new(&self.derenderer, Kind::Chat, body.as_bytes()).unwrap();
        let mut message = Message::default();
        for (i, part) in parts.iter().enumerate() {
            let finish_reason = (i + 1 == parts.len()).then_some(finish);
            let answer = stream.push_part(Part { index: 0, token_ids: part, finish_reason }).unwrap();
            message.add(&serde_json::from_slice::<Value>(&answer).unwrap()["choices"][0]);
        }
        message
    }
}

fn chunk_body(index: i64, ids: &[u32], finish: Option<&str>, state: &Value, more: &Value) -> Value {
    let choice = json!({"index": index, "token_ids": ids, "finish_reason": finish});
    let chunk = json!({"request_id": "r", "choices": [choice]});
    merged(json!({"stream": true, "generate_chunk": chunk, "stream_state": state}), more)
}

fn merged(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// What a client joins of deltas.
#[derive(Debug, Default, PartialEq, Clone)]
struct Message {
    content: String,
    reasoning: String,
    /// Id, name, arguments.
    calls: Vec<(String, String, String)>,
    finish_reason: Option<String>,
    stop_reason: Value,
    roles: usize,
}

impl Message {
    fn add(&mut self, choice: &Value) {
        let delta = &choice["delta"];
        self.roles += usize::from(delta["role"] == "assistant");
        self.content.push_str(delta["content"].as_str().unwrap_or_default());
        self.reasoning.push_str(delta["reasoning"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
            if self.calls.len() <= index {
                self.calls.resize_with(index + 1, Default::default);
            }
            let (id, name, arguments) = &mut self.calls[index];
            id.push_str(call["id"].as_str().unwrap_or_default());
            name.push_str(call["function"]["name"].as_str().unwrap_or_default());
            arguments.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish_reason = Some(reason.to_owned());
            self.stop_reason = choice["stop_reason"].clone();
        }
    }

    fn of_whole(choice: &Value) -> Self {
        let told = &choice["message"];
        let part = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        let mut message =
            Message { roles: 1, content: part("content"), reasoning: part("reasoning"), ..Message::default() };
        for call in told["tool_calls"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let function = &call["function"];
            message.calls.push((text(&call["id"]), text(&function["name"]), text(&function["arguments"])));
        }
        message.finish_reason = choice["finish_reason"].as_str().map(str::to_owned);
        message.stop_reason = choice["stop_reason"].clone();
        message
    }
}

fn cut<'i>(ids: &'i [u32], cuts: &[usize]) -> Vec<&'i [u32]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (ids.len() + 1)).collect();
    cuts.sort_unstable();
    let mut parts = Vec::new();
    let mut begun = 0;
    for end in cuts.into_iter().chain([ids.len()]) {
        parts.push(&ids[begun..end]);
        begun = end;
    }
    parts
}

fn chat(more: &Value) -> Value {
    let request = merged(json!({"messages": [{"role": "user", "content": "q"}]}), more);
    json!({"chat_request": request})
}

/// A request with tools, and a prompt that leaves reasoning open.
fn with_tools() -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}});
    merged(json!({"prompt_token_ids": [1, 2, 3]}), &chat(&json!({"tools": [tool("f"), tool("g")]})))
}

#[test]
fn parts_of_any_size_come_to_the_whole() {
    let plain = Server::plain();
    let parsing = STATES.map(Server::parsing);
    let texts = [
        "step one\nstep two</think>\n\nHello 🦜 <b>world</b>",
        "no end of thought",
        "t</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x } \\\" 日本\"}}\n</tool_call>",
        "</think>hi<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"g\", \"arguments\": {\"a\": \"</tool_call>\"}}</tool_call>",
        "</think>cut <tool_call>{\"name\": \"f\", \"argu",
        "ok END of it ENd",
    ];
    let stops = [json!([]), json!("END"), json!(["ND o", "END", "x }"]), json!(["hi", "world</b>?"])];
    let strategy = (
        proptest::sample::select(texts.to_vec()),
        proptest::sample::select(stops.to_vec()),
        proptest::sample::select(vec!["stop", "length"]),
        proptest::collection::vec(any::<usize>(), 0..5),
        (0..3usize, any::<bool>(), 0..6u32),
    );
    let mut runner = TestRunner::new(Config { cases: 120, failure_persistence: None, ..Config::default() });
    let held = runner.run(&strategy, |(text, stop, finish, cuts, (mode, includes, least))| {
        let request = json!({"stop": stop, "include_stop_str_in_output": includes, "min_tokens": least});
        let ids = plain.ids(text);
        let ones: Vec<&[u32]> = ids.chunks(1).collect();
        for (server, more) in [(&plain, chat(&request)), (&parsing[mode], with_tools())] {
            let mut more = more;
            more["chat_request"].as_object_mut().unwrap().extend(request.as_object().unwrap().clone());
            let whole = server.whole(&ids, finish, &more).unwrap();
            let mut want = Message::of_whole(&whole["choices"][0]);
            let parts = cut(&ids, &cuts);
            let streams = [
                server.streamed(&parts, finish, &more).unwrap().0,
                server.streamed(&ones, finish, &more).unwrap().0,
                server.kept(&parts, finish, &more),
            ];
            // Ids of calls follow from the request's id, which the stream that is kept here draws.
            let same = |mut message: Message| {
                message.calls.iter_mut().for_each(|call| call.0.clear());
                message
            };
            // Blank text before calls is a matter of whole answers; arguments are spelled anew in them.
            let spelled = |mut message: Message| {
                for call in &mut message.calls {
                    call.2 = call.2.replace(": ", ":");
                }
                message.content = message.content.trim().to_owned();
                same(message)
            };
            prop_assert_eq!(&streams[0], &streams[1]);
            prop_assert_eq!(same(streams[0].clone()), same(streams[2].clone()));
            want.roles = streams[0].roles;
            prop_assert_eq!(spelled(streams[0].clone()), spelled(want), "{:?} {:?}", text, stop);
        }
        Ok(())
    });
    held.unwrap();
}

#[test]
fn stop_strings_are_cut_whole_and_in_streams() {
    let server = Server::plain();
    let ids = server.ids("ok ENDING");
    for (request, want) in [
        (json!({"stop": ["END"]}), "ok "),
        (json!({"stop": ["END"], "include_stop_str_in_output": true}), "ok END"),
        (json!({"stop": ["ZZ"]}), "ok ENDING"),
        (json!({"stop": ["END"], "min_tokens": 100}), "ok ENDING"),
    ] {
        let more = chat(&request);
        let whole = server.whole(&ids, "stop", &more).unwrap();
        assert_eq!(whole["choices"][0]["message"]["content"], want, "{request}");
        let reason = if want == "ok ENDING" { Value::Null } else { "END".into() };
        assert_eq!(whole["choices"][0]["stop_reason"], reason);
        let ones: Vec<&[u32]> = ids.chunks(1).collect();
        let (message, _) = server.streamed(&ones, "stop", &more).unwrap();
        assert_eq!((message.content.as_str(), &message.stop_reason), (want, &reason), "{request}");
        // An engine that did not stop there did not take it for one.
        let (message, _) = server.streamed(&ones, "length", &more).unwrap();
        assert_eq!(message.content, "ok ENDING");
    }
}

#[test]
fn the_token_that_ends_an_output_is_no_text() {
    let server = Server::plain();
    let (end, other_end) = (server.ids("<|im_end|>")[0], server.ids("<|endoftext|>")[0]);
    let hello = server.ids("Hello");
    let with = |id: u32| [&hello[..], &[id]].concat();
    let kept = json!({"skip_special_tokens": false});
    let content = |ids: &[u32], finish: &str, request: &Value| {
        let answer = server.whole(ids, finish, &chat(request)).unwrap();
        let choice = &answer["choices"][0];
        assert_eq!(answer["usage"]["completion_tokens"], ids.len());
        (choice["message"]["content"].as_str().unwrap().to_owned(), choice["stop_reason"].clone())
    };
    assert_eq!(content(&with(end), "stop", &kept), ("Hello".to_owned(), Value::Null));
    assert_eq!(content(&with(other_end), "stop", &kept), ("Hello".to_owned(), json!(other_end)));
    assert_eq!(content(&with(end), "length", &kept).0, "Hello<|im_end|>");
    let ignored = json!({"skip_special_tokens": false, "ignore_eos": true});
    assert_eq!(content(&with(end), "stop", &ignored).0, "Hello<|im_end|>");
    let asked = json!({"stop_token_ids": [hello[0]]});
    assert_eq!(content(&hello[..1], "stop", &asked), (String::new(), json!(hello[0])));
    let included = json!({"skip_special_tokens": false, "include_stop_str_in_output": true});
    assert_eq!(content(&with(end), "stop", &included).0, "Hello<|im_end|>");
}

#[test]
fn an_output_goes_on_from_what_a_stock_server_sends() {
    for mode in STATES {
        let server = Server::parsing(mode);
        let text = "why</think>Hi <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"1\"}}</tool_call>";
        let ids = server.ids(text);
        let more = with_tools();
        let ones: Vec<&[u32]> = ids.chunks(1).collect();
        let (want, states) = server.streamed(&ones, "stop", &more).unwrap();
        for at in 1..ids.len() {
            // It answers a chunk of its own, with our blob as it was.
            let mut state = states[at].clone();
            if mode != "compact" {
                let (mut output, mut lens) = (ids[..at].to_vec(), vec![1; at]);
                if at + 1 < ids.len() {
                    output.push(ids[at]);
                    lens.push(1);
                }
                let known = output.len();
                state["output_token_ids"] = json!(output);
                state["output_chunk_lens"] = json!(lens);
                state["tools_streamed"] = states[known]["tools_streamed"].clone();
                state["last_tool_call_ids"] = states[known]["last_tool_call_ids"].clone();
                let mut rest = Message::default();
                let body = chunk_body(0, &ids[known..], Some("stop"), &state, &more);
                rest.add(&server.post(Kind::Chat, &body).unwrap()["chunk"]["choices"][0]);
                // And without it.
                state["prev_tokens"] = json!([]);
                let mut anew = Message::default();
                let body = chunk_body(0, &ids[known..], Some("stop"), &state, &more);
                anew.add(&server.post(Kind::Chat, &body).unwrap()["chunk"]["choices"][0]);
                assert_eq!(rest, anew, "{mode} {at}");
                assert!(want.reasoning.ends_with(&rest.reasoning) && want.content.ends_with(&rest.content));
                assert_eq!(rest.finish_reason, want.finish_reason, "{mode} {at}");
            }
        }
    }
}

#[test]
fn states_are_as_small_as_they_can_be() {
    let ids = |server: &Server| server.ids(&format!("t</think>{}", "word ".repeat(60)));
    let sizes = STATES.map(|mode| {
        let server = Server::parsing(mode);
        let ids = ids(&server);
        let ones: Vec<&[u32]> = ids.chunks(1).collect();
        let (_, states) = server.streamed(&ones, "stop", &with_tools()).unwrap();
        (states[20].to_string().len(), states[60].to_string().len())
    });
    let [full, compact, cached] = sizes;
    assert!(full.1 > full.0 + 100, "all output is in it: {full:?}");
    assert!(compact.1 < compact.0 + 40, "it does not grow: {compact:?}");
    assert!(cached.1 < full.1, "{cached:?} {full:?}");
}

#[test]
fn several_choices_go_side_by_side() {
    for server in [Server::plain(), Server::parsing("compat"), Server::parsing("compact")] {
        let more = with_tools();
        let outputs = [server.ids("</think>first of them"), server.ids("think</think>second")];
        let mut state = Value::Null;
        let mut messages = [Message::default(), Message::default()];
        for at in 0..outputs.iter().map(Vec::len).max().unwrap() {
            let mut choices = Vec::new();
            for (index, output) in outputs.iter().enumerate() {
                if let Some(id) = output.get(at) {
                    let finish = (at + 1 == output.len()).then_some("stop");
                    choices.push(json!({"index": index, "token_ids": [id], "finish_reason": finish}));
                }
            }
            let chunk = json!({"request_id": "r", "choices": choices});
            let body = merged(json!({"stream": true, "generate_chunk": chunk, "stream_state": state}), &more);
            let answer = server.post(Kind::Chat, &body).unwrap();
            for choice in answer["chunk"]["choices"].as_array().unwrap() {
                messages[usize::try_from(choice["index"].as_u64().unwrap()).unwrap()].add(choice);
            }
            state = answer["stream_state"].clone();
        }
        for (message, output) in messages.iter().zip(&outputs) {
            let whole = server.whole(output, "stop", &more).unwrap();
            assert_eq!(*message, Message::of_whole(&whole["choices"][0]));
        }
    }
}

#[test]
fn an_empty_choice_does_not_lose_the_others() {
    let server = Server::plain();
    let ids = server.ids("Hello");
    let choices = json!([{"index": 0, "token_ids": []}, {"index": 1, "token_ids": ids}]);
    let body = json!({"generate_response": {"request_id": "r", "choices": choices}});
    let answer = server.post(Kind::Chat, &body).unwrap();
    let contents = [0, 1].map(|i| answer["choices"][i]["message"]["content"].clone());
    assert_eq!(contents, [json!(""), json!("Hello")]);
    let body = json!({"generate_response": {"request_id": "r", "choices": [{"index": 0, "token_ids": []}]}});
    assert_eq!(refused(&server, Kind::Chat, &body), (400, "BadRequestError".to_owned(), None));
}

fn refused(server: &Server, kind: Kind, body: &Value) -> (u16, String, Option<String>) {
    let error = server.post(kind, body).unwrap_err();
    (error.status(), error.kind().to_owned(), error.param().map(str::to_owned))
}

#[test]
fn what_is_too_much_is_refused_before_it_is_decoded() {
    let server = Server::plain();
    let response = |choices: Value| json!({"request_id": "r", "choices": choices});
    let choice = |ids: usize| json!({"index": 0, "token_ids": vec![5; ids]});
    let entry = |top: usize| {
        let one = json!({"token_id": 1, "logprob": -1.0});
        json!({"token_id": 1, "logprob": -1.0, "top_logprobs": vec![one; top]})
    };
    let logprobs = |count: usize, top: usize| json!([{"index": 0, "token_ids": [5], "logprobs": {"content": vec![entry(top); count]}}]);
    let wide: serde_json::Map<String, Value> = (0..22).map(|id| (id.to_string(), json!({"logprob": -1.0}))).collect();
    let prompt_logprobs = |entries: Value| merged(response(json!([choice(1)])), &json!({"prompt_logprobs": entries}));
    for response in [
        response(json!([choice(401)])),
        response(json!(vec![choice(1); 16_385])),
        response(logprobs(401, 0)),
        response(logprobs(1, 21)),
        prompt_logprobs(json!(vec![Value::Null; 401])),
        prompt_logprobs(json!([wide])),
    ] {
        let body = json!({"generate_response": response});
        assert_eq!(refused(&server, Kind::Chat, &body), (400, "BadRequestError".to_owned(), None));
        let body = json!({"generate_responses": [response]});
        assert_eq!(refused(&server, Kind::Completion, &body), (400, "BadRequestError".to_owned(), None));
    }
    let body = json!({"generate_responses": vec![response(json!([])); 16_385]});
    assert_eq!(refused(&server, Kind::Completion, &body).0, 400);
    let many =
        merged(json!({"generate_response": response(json!([choice(1)]))}), &json!({"prompt_token_ids": vec![1; 401]}));
    assert_eq!(refused(&server, Kind::Chat, &many), (400, "BadRequestError".to_owned(), None));
    let small = Server::new(&json!({"max_request_bytes": 100}));
    let body = json!({"generate_response": response(json!([choice(300)]))});
    assert_eq!(refused(&small, Kind::Chat, &body), (400, "BadRequestError".to_owned(), None));
}

#[test]
fn bad_bodies_are_refused_with_the_place() {
    let server = Server::plain();
    let good = json!({"request_id": "r", "choices": [{"index": 0, "token_ids": [5]}]});
    let with = |path: &str, value: Value| {
        let mut response = good.clone();
        *response.pointer_mut(path).unwrap() = value;
        json!({"generate_response": response})
    };
    for (body, param) in [
        (json!({}), "body.generate_response"),
        (json!({"generate_response": 5}), "body.generate_response"),
        (json!({"generate_response": {"request_id": "r"}}), "body.generate_response.choices"),
        (with("/choices/0/token_ids", json!([-1])), "body.generate_response.choices.0.token_ids"),
        (with("/choices/0/token_ids", json!(["x"])), "body.generate_response.choices.0.token_ids.0"),
        (with("/choices/0", json!({"token_ids": [1]})), "body.generate_response.choices.0.index"),
        (
            json!({"generate_response": merged(good.clone(), &json!({"output_mode": "text"}))}),
            "body.generate_response.output_mode",
        ),
        (json!({"stream": true}), "body.generate_chunk"),
        (
            json!({"stream": true, "generate_chunk": good, "stream_state": {"prev_tokens": vec!["a"; 1025]}}),
            "body.stream_state.prev_tokens",
        ),
        (
            json!({"stream": true, "generate_chunk": good, "stream_state": {"read_offset": -1}}),
            "body.stream_state.read_offset",
        ),
        (
            json!({"stream": true, "generate_chunk": good, "stream_state": {"output_token_ids": [1], "output_chunk_lens": [2]}}),
            "body.stream_state",
        ),
        (
            json!({"stream": true, "generate_chunk": good, "stream_state": {"output_token_ids": [], "output_chunk_lens": [0]}}),
            "body.stream_state.output_chunk_lens",
        ),
        (
            json!({"stream": true, "generate_chunk": good, "stream_state": {"logprob_context_token_ids": [1, 2, 3, 4, 5]}}),
            "body.stream_state",
        ),
    ] {
        assert_eq!(
            refused(&server, Kind::Chat, &body),
            (400, "Bad Request".to_owned(), Some(param.to_owned())),
            "{body}"
        );
    }
    let model = json!({"model": "nope", "generate_response": good});
    assert_eq!(refused(&server, Kind::Chat, &model), (404, "NotFoundError".to_owned(), Some("model".to_owned())));
    let lengths = json!({"generate_responses": [good], "prompt_tokens": [1, 2]});
    assert_eq!(refused(&server, Kind::Completion, &lengths), (400, "Bad Request".to_owned(), Some("body".to_owned())));
    assert_eq!(refused(&server, Kind::Completion, &json!({"generate_responses": []})).1, "BadRequestError");
    let parsing = Server::parsing("compat");
    let no_request = json!({"generate_response": good});
    assert_eq!(refused(&parsing, Kind::Chat, &no_request), (400, "BadRequestError".to_owned(), None));
    let no_prompt = merged(json!({"stream": true, "generate_chunk": good}), &chat(&json!({})));
    assert_eq!(refused(&parsing, Kind::Chat, &no_prompt), (400, "BadRequestError".to_owned(), None));
}

#[test]
fn states_that_were_touched_are_refused_or_harmless() {
    let servers = [Server::parsing("compat"), Server::parsing("compact"), Server::plain()];
    for (which, server) in servers.iter().enumerate() {
        let more = merged(with_tools(), &json!({}));
        let ids = server.ids("t</think>Hi <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"long\"}}</tool_call>");
        let ones: Vec<&[u32]> = ids.chunks(1).collect();
        let (_, states) = server.streamed(&ones, "stop", &more).unwrap();
        let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
        let strategy = (1..states.len() - 1, any::<usize>(), any::<u8>(), 0..6u8);
        let held = runner.run(&strategy, |(at, place, byte, what)| {
            let mut state = states[at].clone();
            match what {
                0 => {
                    let Some(item) = state["prev_tokens"][0].as_str().map(str::to_owned) else { return Ok(()) };
                    let mut bytes = item.into_bytes();
                    let place = place % bytes.len();
                    bytes[place] = b' ' + byte % 95;
                    state["prev_tokens"][0] = String::from_utf8_lossy(&bytes).into_owned().into();
                }
                1 => state["prev_tokens"] = json!(["fr1."]),
                2 => state["read_offset"] = json!(place % 9),
                3 => state["prev_tokens"] = json!([]),
                4 => state["last_tool_call_ids"] = json!(["x", "y"]),
                _ => state["output_token_ids"] = json!([]),
            }
            match server.post(Kind::Chat, &chunk_body(0, &ids[at..], Some("stop"), &state, &more)) {
                Ok(_) => {}
                Err(error) => prop_assert_eq!(error.status(), 400, "{}", error),
            }
            Ok(())
        });
        held.unwrap();
        // A state of another request is none of this one's.
        let other = merged(with_tools(), &json!({"prompt_token_ids": [9, 9]}));
        let mut foreign = states[3].clone();
        foreign["output_token_ids"] = json!([]);
        foreign["output_chunk_lens"] = json!([]);
        let answer = server.post(Kind::Chat, &chunk_body(0, &ids[3..], Some("stop"), &foreign, &other));
        if which < 2 {
            assert_eq!(answer.unwrap_err().status(), 400);
        }
        let mut lost = foreign;
        lost["prev_tokens"] = json!([]);
        let answer = server.post(Kind::Chat, &chunk_body(0, &ids[3..], Some("stop"), &lost, &more));
        if which < 2 {
            assert_eq!(answer.unwrap_err().status(), 400);
        }
    }
}

#[test]
fn a_blob_of_any_content_does_no_harm() {
    let server = Server::parsing("compact");
    let ids = server.ids("t</think>Hi there");
    let more = with_tools();
    let (_, states) = server.streamed(&[&ids[..2], &ids[2..]], "stop", &more).unwrap();
    let item = states[1]["prev_tokens"][0].as_str().unwrap().to_owned();
    let blob = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(item.strip_prefix("fr1.").unwrap()).unwrap();
    let (good, _) = blob.split_at(blob.len() - 8);
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    let strategy = (proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4), any::<usize>());
    let held = runner.run(&strategy, |(edits, length)| {
        // Whoever knows the digest can make one for any content.
        let mut bytes = good.to_vec();
        for (at, byte) in edits {
            let at = 9 + at % (bytes.len() - 9);
            bytes[at] = byte;
        }
        if length % 3 == 0 {
            bytes.truncate(length % (bytes.len() + 1));
        }
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(&digest.as_bytes()[..8]);
        let item = format!("fr1.{}", base64_simd::URL_SAFE_NO_PAD.encode_to_string(&bytes));
        let state = json!({"prev_tokens": [item], "role_sent": true});
        if let Err(error) = server.post(Kind::Chat, &chunk_body(0, &ids[2..], Some("stop"), &state, &more)) {
            prop_assert_eq!(error.status(), 400, "{}", error);
        }
        Ok(())
    });
    held.unwrap();
}

#[test]
fn logprobs_have_texts_and_bytes() {
    let raw = Server::plain();
    let text = Server::new(&json!({"logprob_bytes": "text"}));
    // U+1F99C in four bytes that are tokens of their own.
    let ids: Vec<u32> = ["ð", "Ł", "¦", "ľ"].map(|piece| raw.renderer.tokenizer().token_to_id(piece).unwrap()).into();
    let entry = |id: u32| json!({"token_id": id, "logprob": -0.5, "top_logprobs": [{"token_id": id, "logprob": -0.5}, {"token_id": 999_999, "logprob": -2}]});
    let entries: Vec<Value> = ids.iter().map(|&id| entry(id)).collect();
    let answer = |server: &Server, request: &Value| {
        let choice = json!({"index": 0, "token_ids": ids, "finish_reason": "stop", "logprobs": {"content": entries}});
        let body = json!({"generate_response": {"request_id": "r", "choices": [choice]}});
        server.post(Kind::Chat, &merged(body, &chat(request))).unwrap()["choices"][0]["logprobs"]["content"].clone()
    };
    let all = json!({"logprobs": true, "top_logprobs": 2});
    let found = answer(&raw, &all);
    let field = |found: &Value, name: &str| -> Vec<Value> { (0..4).map(|i| found[i][name].clone()).collect() };
    assert_eq!(field(&found, "token"), [json!(""), json!(""), json!(""), json!("🦜")]);
    assert_eq!(field(&found, "bytes"), [json!([0xF0]), json!([0x9F]), json!([0xA6]), json!([0x9C])]);
    assert_eq!(found[0]["top_logprobs"][1], json!({"token": "", "logprob": -2.0, "bytes": null}));
    assert_eq!(
        field(&answer(&text, &all), "bytes"),
        [json!([]), json!([]), json!([]), json!([0xF0, 0x9F, 0xA6, 0x9C])]
    );
    let none = answer(&raw, &json!({"logprobs": true}));
    assert_eq!(none[0]["top_logprobs"], json!([]));
    let one = answer(&raw, &json!({"logprobs": true, "top_logprobs": 1}));
    assert_eq!(one[0]["top_logprobs"].as_array().unwrap().len(), 1);
    // In a stream the tokens before are in the state.
    let mut state = Value::Null;
    for (i, &id) in ids.iter().enumerate() {
        let choice = json!({"index": 0, "token_ids": [id], "logprobs": {"content": [entry(id)]}});
        let body =
            json!({"stream": true, "generate_chunk": {"request_id": "r", "choices": [choice]}, "stream_state": state});
        let answer = raw.post(Kind::Completion, &body).unwrap();
        let logprobs = &answer["chunk"]["choices"][0]["logprobs"];
        assert_eq!(logprobs["tokens"], json!([if i == 3 { "🦜" } else { "" }]));
        assert_eq!(logprobs["text_offset"], json!([0]));
        state = answer["stream_state"].clone();
    }
    assert_eq!(state["logprob_text_offset"], 1);
}

#[test]
fn prompt_logprobs_are_echoed_by_both_routes() {
    let server = Server::plain();
    let response = json!({
        "request_id": "r", "choices": [{"index": 0, "token_ids": server.ids("Hello")}],
        "prompt_logprobs": [null, {"5": {"logprob": -1, "rank": 2}}],
    });
    let want = json!([null, {"5": {"logprob": -1.0, "rank": 2, "decoded_token": null}}]);
    let chat = server.post(Kind::Chat, &json!({"generate_response": response})).unwrap();
    assert_eq!(chat["prompt_logprobs"], want);
    let completion = server.post(Kind::Completion, &json!({"generate_responses": [response]})).unwrap();
    assert_eq!(completion["choices"][0]["prompt_logprobs"], want);
}

#[test]
fn a_usage_chunk_changes_no_state() {
    for server in [Server::plain(), Server::parsing("compat")] {
        let more = with_tools();
        let (_, states) = server.streamed(&[&server.ids("t</think>Hel"), &[]], "stop", &more).unwrap();
        let chunk = json!({"request_id": "r", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}});
        let body = merged(json!({"stream": true, "generate_chunk": chunk, "stream_state": states[1]}), &more);
        let answer = server.post(Kind::Chat, &body).unwrap();
        assert_eq!(answer["stream_state"], states[1]);
        assert_eq!(answer["chunk"]["usage"]["total_tokens"], 7);
    }
}

#[test]
fn a_stream_that_is_kept_here_counts_and_ends() {
    let server = Server::plain();
    let mut stream = OpenStream::new(&server.derenderer, Kind::Completion, b"{}").unwrap();
    let ids = server.ids("Hello world");
    stream.push_part(Part { index: 0, token_ids: &ids, finish_reason: None }).unwrap();
    stream.push_part(Part { index: 1, token_ids: &ids[..1], finish_reason: Some("length") }).unwrap();
    let last: Value = serde_json::from_slice(&stream.finish("stop").unwrap().unwrap()).unwrap();
    assert_eq!(last["choices"][0]["index"], 0);
    assert_eq!(last["choices"].as_array().unwrap().len(), 1);
    assert!(stream.finish("stop").unwrap().is_none());
    let usage: Value = serde_json::from_slice(&stream.usage_chunk()).unwrap();
    assert_eq!(usage["usage"]["completion_tokens"], ids.len() + 1);
    let ended = Part { index: 1, token_ids: &ids, finish_reason: None };
    assert_eq!(stream.push_part(ended).unwrap_err().status(), 400);
    let long = vec![5; 401];
    let many = Part { index: 2, token_ids: &long, finish_reason: None };
    assert_eq!(stream.push_part(many).unwrap_err().status(), 400);
}
