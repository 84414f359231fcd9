//! Chat templates against Jinja2's own renderings, and against templates that mean harm.

use std::fmt::Write;
use std::sync::mpsc;
use std::time::Duration;

use fastrender_core::Error;
use fastrender_core::json::{Json, Map};
use fastrender_core::spec::ContentFormat;
use fastrender_core::template::{ChatTemplate, Limits, RenderInput, Timestamp, is_apply_parameter};
use proptest::prelude::*;

const LIMITS: Limits = Limits { fuel: 5_000_000, output_bytes: 4 << 20, made_bytes: 24 << 20 };
const GOLDEN: &str = include_str!("golden/templates.json");
/// The golden renderings' `now`.
const NOW: Timestamp = Timestamp { year: 2026, month: 11, day: 30, hour: 12, minute: 34, second: 56, microsecond: 789 };

fn compile(source: &str) -> Result<ChatTemplate, Error> {
    ChatTemplate::new(source, &Map::new(), LIMITS)
}

fn input<'a>(messages: &'a Json<'a>, kwargs: &'a Map<'a>) -> RenderInput<'a> {
    RenderInput {
        messages: messages.as_array().expect("messages are a list"),
        tools: None,
        documents: None,
        add_generation_prompt: false,
        continue_final_message: false,
        kwargs,
        now: Some(NOW),
    }
}

/// Render with one short message, or the message of the error.
fn render_with(source: &str, messages: &str, kwargs: &str) -> Result<String, String> {
    let messages = Json::parse(messages).expect("messages are JSON");
    let Ok(Json::Object(kwargs)) = Json::parse(kwargs) else { panic!("variables are an object") };
    let template = compile(source).map_err(|error| error.to_string())?;
    template.render(&input(&messages, &kwargs)).map_err(|error| error.to_string())
}

fn render(source: &str) -> Result<String, String> {
    render_with(source, r#"[{"role": "user", "content": "hi"}]"#, "{}")
}

/// Run on a thread with an ordinary stack, and give up after a while.
fn within<T: Send + 'static>(seconds: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(seconds)).expect("the work ends in time")
}

#[test]
fn goldens_of_jinja2() {
    let Ok(Json::Object(golden)) = Json::parse(GOLDEN) else { panic!("the goldens are an object") };
    let object = |key: &str| golden.get(key).and_then(Json::as_object).expect("the goldens have it");
    let input = RenderInput {
        messages: golden.get("messages").and_then(Json::as_array).expect("the goldens have messages"),
        tools: golden.get("tools"),
        documents: None,
        add_generation_prompt: true,
        continue_final_message: false,
        kwargs: object("variables"),
        now: Some(NOW),
    };
    let mut wrong = String::new();
    let cases = golden.get("cases").and_then(Json::as_array).expect("the goldens have cases");
    assert!(cases.len() > 200, "the goldens are all there");
    for case in cases {
        let case = case.as_object().expect("a case is an object");
        let source = case.get("source").and_then(Json::as_str).expect("a case has a source");
        let want = case.get("text").and_then(Json::as_str);
        let got = ChatTemplate::new(source, object("special_tokens"), LIMITS).and_then(|t| t.render(&input));
        if got.as_deref().ok() != want {
            write!(wrong, "\n{source:?}\n  want {want:?}\n  got  {got:?}").expect("a string takes all");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_template_raises_with_its_own_words() {
    assert_eq!(render("{{ raise_exception('no ' + messages[0].role) }}"), Err("no user".to_owned()));
    let nested = "{% macro stop(x) %}{{ raise_exception('inner ' ~ x) }}{% endmacro %}{{ stop(1) }}";
    assert_eq!(render(nested), Err("inner 1".to_owned()));
}

#[test]
fn errors_name_the_line() {
    for (source, want) in [
        ("\n\n{{ nope.x }}", "line 3: "),
        ("a\n{{ 'x' + 1 }}", "line 2: "),
        ("a\nb\n{% block x %}{% endblock %}", "line 3: the tag `block` is not supported"),
        ("{% do x() %}", "line 1: the tag `do` is not supported"),
        ("\n{{ x|groupby('a') }}", "line 2: the filter `groupby` is not supported"),
        ("\n{{ x|nosuch }}", "line 2: there is no filter `nosuch`"),
        ("\n{{ x is nosuch }}", "line 2: there is no test `nosuch`"),
        ("{{ f(*x) }}", "line 1: unpacking arguments with `*` is not supported"),
        ("{{ lipsum() }}", "line 1: the function `lipsum` is not supported"),
        ("{{ 'a' ~ 1e-7 }}", "line 1: a constant expression"),
        ("{{ 'a' < 1 }}", "line 1: a constant expression"),
        ("{% for x in y %}{% continue %}{% else %}e{% endfor %}", "line 1: `continue` in a loop with an `else`"),
        ("{% macro m(a, b=a) %}{% endmacro %}", "line 1: a default that refers to the parameter `a`"),
        ("a{# b", "line 1: a comment is not closed"),
        ("{{ 'a", "line 1: a string is not closed"),
        ("{{ a", "line 1: a tag is not closed"),
        ("{% raw %}", "line 1: a raw block is not closed"),
        ("{% if a %}", "line 1: "),
        ("{% endif %}", "line 1: "),
        ("{{ '\\N{DASH}' }}", "line 1: the escape"),
    ] {
        let message = render(source).expect_err(source);
        assert!(message.starts_with(want), "{source:?}: {message}");
    }
}

#[test]
fn refusals_are_the_clients_fault() {
    let template = compile("{{ messages }}").unwrap();
    let (none, kwargs) = (Json::Array(Vec::new()), Map::new());
    assert!(matches!(template.render(&input(&none, &kwargs)), Err(Error::BadRequest { .. })));
    let messages = Json::parse(r#"[{"role": "user", "content": "x"}]"#).unwrap();
    for tools in ["{}", "[1]", "\"x\""] {
        let tools = Json::parse(tools).unwrap();
        let input = RenderInput { tools: Some(&tools), ..input(&messages, &kwargs) };
        assert!(matches!(template.render(&input), Err(Error::BadRequest { .. })), "{tools:?}");
    }
    let failed = compile("{{ 1 + messages }}").unwrap().render(&input(&messages, &kwargs)).unwrap_err();
    assert!(matches!(failed, Error::Template { .. }));
    assert_eq!(failed.status(), 400);
}

#[test]
fn a_given_variable_replaces_a_special_token_but_not_the_messages() {
    let Ok(Json::Object(tokens)) = Json::parse(r#"{"bos_token": "<s>", "eos_token": "</s>"}"#) else { panic!() };
    let Ok(Json::Object(kwargs)) = Json::parse(r#"{"bos_token": "<b>", "messages": 1, "own": [1]}"#) else { panic!() };
    let template =
        ChatTemplate::new("{{ bos_token }}{{ eos_token }}{{ own }}{{ messages | length }}", &tokens, LIMITS).unwrap();
    let messages = Json::parse(r#"[{"role": "user", "content": "x"}]"#).unwrap();
    assert_eq!(template.render(&input(&messages, &kwargs)).unwrap(), "<b></s>[1]1");
}

#[test]
fn a_lone_surrogate_fails_only_where_it_is_used() {
    let message = r#"[{"role": "user", "content": "ok", "name": "\ud800"}]"#;
    assert_eq!(render_with("{{ messages[0].content }}", message, "{}"), Ok("ok".to_owned()));
    assert_eq!(render_with("{{ messages[0].name is string }}", message, "{}"), Ok("True".to_owned()));
    for source in
        ["{{ messages[0].name }}", "{{ messages | tojson }}", "{{ messages }}", "{{ messages[0].name ~ 'x' }}"]
    {
        assert!(render_with(source, message, "{}").is_err(), "{source}");
    }
}

#[test]
fn content_formats() {
    for (source, want) in [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", ContentFormat::String),
        ("{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", ContentFormat::OpenAi),
        ("{% for m in messages %}{% for c in m['content'] %}{% endfor %}{% endfor %}", ContentFormat::OpenAi),
        (
            "{% for m in messages %}{% for c in m.content | selectattr('x') %}{% endfor %}{% endfor %}",
            ContentFormat::OpenAi,
        ),
        ("{% for m in messages %}{% for c in m['text'] %}{% endfor %}{% endfor %}", ContentFormat::String),
        (
            "{% set rest = messages[1:] %}{% for m in rest %}{% for c in m.content %}{% endfor %}{% endfor %}",
            ContentFormat::OpenAi,
        ),
        (
            "{% set ns = namespace(all=messages) %}{% for m in ns.all %}{% for c in m.content %}{% endfor %}{% endfor %}",
            ContentFormat::OpenAi,
        ),
        (
            "{% set ns.all = messages %}{% for m in ns.all %}{% for c in m.content %}{% endfor %}{% endfor %}",
            ContentFormat::OpenAi,
        ),
        ("{% for content in x %}{% for c in content %}{% endfor %}{% endfor %}", ContentFormat::OpenAi),
        (
            "{% macro show(content) %}{% for c in content %}{% endfor %}{% endmacro %}{{ show(1) }}",
            ContentFormat::String,
        ),
        (
            "{% macro show(p) %}{% for c in p %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.content) }}{% endfor %}",
            ContentFormat::OpenAi,
        ),
        (
            "{% macro show(p) %}{% for c in p %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(p=m.content) }}{% endfor %}",
            ContentFormat::OpenAi,
        ),
        (
            "{% macro show(p) %}{% for c in p %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.role) }}{% endfor %}",
            ContentFormat::String,
        ),
        ("{% for m in other %}{% for c in m.content %}{% endfor %}{% endfor %}", ContentFormat::String),
        (
            "{% for a, b in messages %}{% endfor %}{% for content in x %}{% for c in content %}{% endfor %}{% endfor %}",
            ContentFormat::String,
        ),
        ("{% for m in messages %}{% if m.content is string %}{% endif %}{% endfor %}", ContentFormat::String),
    ] {
        assert_eq!(compile(source).expect(source).content_format(), want, "{source}");
    }
}

#[test]
fn names_that_are_taken_from_outside() {
    for (source, want) in [
        ("{{ a }}{% set b = 1 %}{{ b }}", "a"),
        ("{{ a }}{% set a = 1 %}", "a"),
        ("{% if x %}{% set a = 1 %}{% endif %}{{ a }}", "a x"),
        ("{% set a = 0 %}{% if x %}{% set a = 1 %}{% endif %}{{ a }}", "x"),
        ("{% for i in l %}{{ i }}{{ loop.index }}{{ o }}{% endfor %}{{ i }}", "i l o"),
        ("{% macro m(a, b=c) %}{{ a }}{{ b }}{{ d }}{{ caller() }}{% endmacro %}{{ m() }}", "c d"),
        ("{% for i in l %}{{ s }}{% endfor %}{% set s = 1 %}", "l"),
        ("{% with a = b %}{{ a }}{{ c }}{% endwith %}", "b c"),
        ("{% set ns = namespace(x=1) %}{% set ns.x = y %}{{ range(3) }}", "y"),
        ("{% set x %}{{ y }}{% endset %}{% filter upper %}{{ z }}{% endfilter %}", "y z"),
        ("{% generation %}{{ a }}{% set b = 1 %}{% endgeneration %}{{ b }}", "a b"),
        ("{{ raise_exception('x') }}{{ strftime_now('%Y') }}", "raise_exception strftime_now"),
    ] {
        let template = compile(source).expect(source);
        let names: Vec<&str> = template.undeclared_variables().collect();
        assert_eq!(names.join(" "), want, "{source}");
        assert!(names.iter().all(|name| template.accepts(name)), "{source}");
    }
    let template = compile("{{ tokenize }}{{ chat_template }}").unwrap();
    assert!(!template.accepts("tokenize") && !template.accepts("chat_template"));
    assert!(template.accepts("documents") && template.accepts("continue_final_message") && !template.accepts("foo"));
    assert!(is_apply_parameter("conversation") && !is_apply_parameter("tokenize"));
}

#[test]
fn the_developer_role_is_looked_for_in_quotes() {
    assert!(compile("{% if r == 'developer' %}{% endif %}").unwrap().mentions_developer());
    assert!(compile("{# \"developer\" #}").unwrap().mentions_developer());
    assert!(!compile("developer {{ developer }}").unwrap().mentions_developer());
}

fn continued(source: &str, messages: &str) -> Result<String, String> {
    let messages = Json::parse(messages).expect("messages are JSON");
    let kwargs = Map::new();
    let template = compile(source).expect("the template compiles");
    let input = RenderInput { continue_final_message: true, ..input(&messages, &kwargs) };
    template.render(&input).map_err(|error| error.to_string())
}

#[test]
fn the_final_message_is_continued() {
    let plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}!";
    let trimming = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<end>{% endfor %}!";
    let parts = "{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}!";
    let said = r#"[{"role": "user", "content": "q"}, {"role": "assistant", "content": "It is "}]"#;
    assert_eq!(continued(plain, said), Ok("<user>q<end><assistant>It is ".to_owned()));
    assert_eq!(continued(trimming, said), Ok("<user>q<end><assistant>It is".to_owned()));
    let listed = r#"[{"role": "assistant", "content": [{"text": "a"}, {"text": "b "}, {"type": "image"}]}]"#;
    assert_eq!(continued(parts, listed), Ok("a;b ".to_owned()));
    for (source, messages) in [
        (plain, r#"[{"role": "assistant"}]"#),
        (plain, r#"[{"role": "assistant", "content": null}]"#),
        (plain, r#"[{"role": "assistant", "content": 5}]"#),
        (parts, r#"[{"role": "assistant", "content": [{"type": "image"}]}]"#),
        ("{{ messages[0]['con' ~ 'tent'] }}", said),
        ("{% for m in messages %}content{% endfor %}", said),
        ("{{ messages[-1].content | upper }}", said),
    ] {
        assert!(continued(source, messages).is_err(), "{source} {messages}");
    }
    let both = Json::parse(said).unwrap();
    let kwargs = Map::new();
    let input = RenderInput { continue_final_message: true, add_generation_prompt: true, ..input(&both, &kwargs) };
    assert!(matches!(compile(plain).unwrap().render(&input), Err(Error::BadRequest { .. })));
}

#[test]
fn times_without_a_fixed_one_are_the_clocks() {
    let messages = Json::parse(r#"[{"role": "user", "content": "x"}]"#).unwrap();
    let kwargs = Map::new();
    let input = RenderInput { now: None, ..input(&messages, &kwargs) };
    let year = compile("{{ strftime_now('%Y') }}").unwrap().render(&input).unwrap();
    assert!(year.parse::<u32>().is_ok_and(|year| year >= 2025), "{year}");
}

#[test]
fn iso_weeks_at_the_ends_of_years() {
    // As `datetime.strftime("%G %V %j %U %W %u")` gives them.
    for (date, want) in [
        ((2024, 12, 30), "2025 01 365 52 53 1"),
        ((2021, 1, 3), "2020 53 003 01 00 7"),
        ((2023, 1, 1), "2022 52 001 01 00 7"),
        ((2020, 12, 31), "2020 53 366 52 52 4"),
        ((2000, 2, 29), "2000 09 060 09 09 2"),
    ] {
        let messages = Json::parse(r#"[{"role": "user", "content": "x"}]"#).unwrap();
        let kwargs = Map::new();
        let now = Some(Timestamp { year: date.0, month: date.1, day: date.2, ..NOW });
        let template = compile("{{ strftime_now('%G %V %j %U %W %u') }}").unwrap();
        assert_eq!(template.render(&RenderInput { now, ..input(&messages, &kwargs) }).unwrap(), want, "{date:?}");
    }
}

#[test]
fn harm_ends_quickly_in_an_error() {
    let nested =
        |open: &str, close: &str, count: usize| format!("{{{{ {}1{} }}}}", open.repeat(count), close.repeat(count));
    let sources = vec![
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
        "{% for i in range(99999) %}{% for j in range(99999) %}some text{% endfor %}{% endfor %}".to_owned(),
        "{{ 'a' * 10 ** 9 }}".to_owned(),
        "{% set n = 10 ** 9 %}{{ 'a' * n }}".to_owned(),
        "{% set n = 10 ** 9 %}{{ ([1] * n) | length }}".to_owned(),
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_owned(),
        "{% macro f(x) %}{% set y %}{{ f(x) }}{% endset %}{% endmacro %}{{ f(1) }}".to_owned(),
        "{% for i in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".to_owned(),
        nested("(", ")", 5000),
        nested("[", "]", 5000),
        nested("not ", "", 50_000),
        nested("-", "", 50_000),
        nested("a + ", "", 50_000),
        nested("1 if 0 else ", "", 50_000),
        format!("{{{{ a{} }}}}", ".b".repeat(50_000)),
        format!("{{{{ a{} }}}}", "|e".repeat(50_000)),
        format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(50_000)),
        "{% if 1 %}".repeat(5000) + &"{% endif %}".repeat(5000),
        "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}".to_owned(),
        "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}".to_owned(),
        "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}".to_owned(),
        "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}".to_owned(),
        "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}".to_owned(),
        "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}".to_owned(),
        "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}".to_owned(),
        "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}".to_owned(),
        "{% set s = 'a' * 100000 %}{{ s.replace('a', s) }}".to_owned(),
        "{% set s = 'a' * 100000 %}{{ s | replace('', s) }}".to_owned(),
        "{% set s = 'a' * 100000 %}{{ s.join(range(99999) | map('string') | list) }}".to_owned(),
        "{{ '%1000000000d' % 5 }}".to_owned(),
        "{{ '{:>{w}}'.format(5, w=10 ** 9) }}".to_owned(),
        "{{ 'a'.center(10 ** 9) }}".to_owned(),
        "{{ 'a' | center(10 ** 9) }}".to_owned(),
        "{{ 'a\n' | indent(10 ** 10) }}".to_owned(),
        "{{ [[1]] | tojson(indent=10 ** 8) }}".to_owned(),
        "{{ [1] | batch(10 ** 9, 1) | list }}".to_owned(),
        "{{ [1] | slice(10 ** 9) | list }}".to_owned(),
        "{{ range(10 ** 9) }}".to_owned(),
        "{{ strftime_now('%c' * 1000000) }}".to_owned(),
        "{% set l = range(99999) | list %}{% for i in l %}{% if -1 in l %}{% endif %}{% endfor %}".to_owned(),
        "{% for i in range(9999) %}{% set x = range(99999) | list | sort %}{% endfor %}".to_owned(),
        "{% for i in range(99999) %}{% set x %}{{ 'a' * 100000 }}{% endset %}{% endfor %}".to_owned(),
        "{% for i in [1] %}{{ loop.cycle() }}{% endfor %}".to_owned(),
        "x".repeat(2_000_000),
        (0..20_000).fold(String::new(), |all, i| all + &format!("{{% set a{i} = messages %}}")) + "{{ 1 + 'a' }}",
    ];
    for source in sources {
        let head = source[..source.len().min(100)].to_owned();
        let result = within(60, move || render(&source));
        assert!(result.is_err(), "{head} gives {} bytes", result.unwrap_or_default().len());
    }
}

/// Hold that a loop around an operation runs out of fuel within 7000 rounds, and out of nothing else in one.
fn assert_paid_for(setup: &str, operation: &str) {
    let messages = Json::parse(r#"[{"role": "user", "content": "hi"}]"#).expect("it is JSON");
    let kwargs = Map::new();
    let limits = Limits { output_bytes: 64 << 20, made_bytes: usize::MAX, ..LIMITS };
    let render = |rounds: usize| {
        let source = format!(
            "{setup}{{% set ns = namespace(n=0) %}}{{% for i in range({rounds}) %}}{{% set x = {operation} %}}\
             {{% if i % 100 == 0 %}}.{{% endif %}}{{% endfor %}}"
        );
        let template =
            ChatTemplate::new(&source, &Map::new(), limits).unwrap_or_else(|error| panic!("{source}: {error}"));
        template.render(&input(&messages, &kwargs)).map_err(|error| error.to_string())
    };
    for (rounds, result) in [(1, render(1)), (7000, render(7000))] {
        match result {
            Ok(text) => assert!(rounds == 1, "{operation}: {} bytes", text.len()),
            Err(error) => assert!(error.ends_with("takes too many steps"), "{operation}: {error}"),
        }
    }
}

#[test]
fn operations_on_long_texts_are_paid_for() {
    let setup = "{% set s = 'ab c\\n' * 40000 %}{% set t = s ~ 'x' %}{% set u = s ~ 'y' %}{% set many = (t, u) * 500 %}\
                 {% set d = {t: 1} %}";
    for operation in [
        "'zz' in s",
        "s.splitlines()",
        "s.split()",
        "s.split('b')",
        "s.rsplit('b')",
        "s.partition('zz')",
        "s.rpartition('zz')",
        "s.find('zz')",
        "s.rfind('zz')",
        "s.count('zz')",
        "s.find('zz', 5, 150000)",
        "s.startswith(many)",
        "s.startswith(s)",
        "s.removeprefix(s)",
        "s.upper()",
        "s | upper",
        "s | lower",
        "s.title()",
        "s | title",
        "s | capitalize",
        "s.swapcase()",
        "s.casefold()",
        "s.isalpha()",
        "s is lower",
        "s.strip(t)",
        "s | trim(t)",
        "s | trim('ab c\\n')",
        "s | reverse",
        "s | list",
        "s[150000]",
        "s[1:150000]",
        "s[::2]",
        "s | replace('zz', 'y')",
        "s.replace('', 'y')",
        "s | e",
        "s | urlencode",
        "s | wordcount",
        "s | truncate(100000)",
        "s | indent",
        "s | tojson",
        "s | tojson(ensure_ascii=true)",
        "s | int",
        "s | float",
        "s.format()",
        "s % ()",
        "s | center(200000)",
        "s.ljust(200000)",
        "s ~ s",
        "s + s",
        "'a' * 200000",
        "t == u",
        "t < u",
        "t is eq(u)",
        "t is sameas(u)",
        "[t, u] | unique | list",
        "[t, u] | sort",
        "[t, u] | max",
        "[t] == [u]",
        "t in [u]",
        "[t] | select('eq', u) | list",
        "[s] | map('trim') | map('length') | list",
        "[s] | map('upper') | list",
        "','.join(s)",
        "s | join(',')",
        "s | sort",
        "s | batch(2) | list",
        "{s: 1}",
        "d[u]",
        "u in d",
        "dict([(s, 1)])",
        "strftime_now(s)",
        "[1] | map(attribute=s) | list",
        "[] | sort(attribute=s)",
        "[s] | string",
        "[s] | urlencode if false else [[s, s]] | urlencode",
    ] {
        // 200 kB take at least 500 steps, beside the few of the loop.
        assert_paid_for(setup, operation);
    }
}

#[test]
fn operations_on_long_lists_are_paid_for() {
    let setup = "{% set l = range(9998) | list %}{% set m = range(9998) | list %}{% set w = l | map('string') | list %}\
                 {% set d = dict(w | batch(2) | list) %}{% set e = dict(w | batch(2) | list) %}{% set f = l | batch(1) | list %}\
                 {% set t = (1,) * 9999 %}{% set n = namespace(d) %}";
    for operation in [
        "-1 in l",
        "'x' in w",
        "-1 is in l",
        "l | sort",
        "l | sort(reverse=true)",
        "w | sort",
        "f | sort(attribute='0')",
        "w | unique | list",
        "l | sum",
        "f | sum(start=[])",
        "l | max",
        "f | min(attribute='0')",
        "l | map('string') | list",
        "f | map(attribute='0') | list",
        "l | select | list",
        "f | selectattr('0') | list",
        "l | reject('odd') | list",
        "l | batch(3) | list",
        "[1] | batch(9999, 1) | list",
        "l | slice(3) | list",
        "[] | slice(9999) | list",
        "l[1:]",
        "l[::-1]",
        "t[1:]",
        "range(9999)[::2] | list",
        "l | reverse | list",
        "l | join(',')",
        "','.join(w)",
        "l | tojson",
        "d | tojson",
        "l | string",
        "d | string",
        "l ~ ''",
        "'%s' % (l,)",
        "'{}'.format(l)",
        "l == m",
        "l < m",
        "l.count(-1)",
        "l.index(9997)",
        "d | first",
        "d | last",
        "range(9999) | last",
        "d.items() | list",
        "d.keys() | list",
        "d | items | list",
        "d | dictsort",
        "dict(d)",
        "namespace(d)",
        "d[1.5]",
        "1.5 in d",
        "d == e",
        "d.items() == e.items()",
        "d.keys() == e.keys()",
        "(1, 2) in d.items()",
        "l + m",
        "l * 2",
        "t + t",
        "d | urlencode",
        "-1 in range(9999)",
        "range(9999) | list",
        "{t: 1}",
        "(n.a, n.b, n.c)",
        "[l] * 99 == [m] * 99",
    ] {
        // At least half a step for each item, or some for each piece of a text.
        assert_paid_for(setup, operation);
    }
}

#[test]
fn values_without_end_are_not_gone_over_to_their_end() {
    let twins = "{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(99) %}{% set ns.x = (ns.x, ns.x) %}\
                 {% set ns.y = (ns.y, ns.y) %}{% endfor %}";
    for operation in [
        "ns.x == ns.y",
        "ns.x != ns.y",
        "ns.x < ns.y",
        "ns.x >= ns.y",
        "1 < 2 > 1 == (ns.x == ns.y)",
        "ns.x in [ns.y]",
        "ns.x is eq(ns.y)",
        "ns.x is in([ns.y])",
        "[ns.x, ns.y] | unique | list",
        "[ns.x, ns.y] | sort",
        "[ns.x, ns.y] | max",
        "[ns.x] | select('eq', ns.y) | list",
        "[ns.x].count(ns.y)",
        "[ns.x].index(ns.y)",
        "{ns.x: 1}[ns.y]",
        "{1: ns.x} == {1: ns.y}",
        "ns.x ~ ''",
        "ns.x | string | length",
        "ns.x | tojson",
        "'%s' % ([ns.x],)",
    ] {
        let source = format!("{twins}{{% set z = {operation} %}}");
        assert!(within(60, move || render(&source)).is_err(), "{operation}");
    }
    let changed =
        format!("{twins}{{% for i in [1, 2] %}}{{{{ loop.changed(ns.x if i == 1 else ns.y) }}}}{{% endfor %}}");
    assert!(within(60, move || render(&changed)).is_err());
    // Loops that hold loops, twice each.
    let loops = "{% set ns = namespace(l=1, m=1) %}\
                 {% for i in range(60) %}{% for a in [ns.l, ns.l, ns.l] %}{% if loop.index == 2 %}{% set ns.l = loop %}{% break %}{% endif %}{% endfor %}\
                 {% for a in [ns.m, ns.m, ns.m] %}{% if loop.index == 2 %}{% set ns.m = loop %}{% break %}{% endif %}{% endfor %}{% endfor %}\
                 {{ ns.l == ns.m }}{% for i in [ns.l, ns.m] %}{{ loop.changed(i) }}{% endfor %}";
    assert!(within(60, move || render(loops)).is_ok());
}

#[test]
fn rings_of_namespaces_are_compared_by_identity() {
    let rings = "{% set a = namespace() %}{% set b = namespace(a=a, c=a) %}{% set a.b = b %}{% set a.c = b %}\
                 {% set c = namespace() %}{% set d = namespace(a=c, c=c) %}{% set c.b = d %}{% set c.c = d %}\
                 {{ a == c }} {{ a == a }} {{ [a] == [c] }} {{ a in [c] }} {{ [a, c, a] | unique | list | length }}";
    assert_eq!(render(rings), Ok("False True False False 2".to_owned()));
}

#[test]
fn what_is_made_is_bounded_even_when_it_is_cheap() {
    for source in [
        "{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set ns.x = [ns.x, range(9999) | list] %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set ns.x = [ns.x, 'a' * 100000] %}{% endfor %}",
        "{% set s = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b' * 1000 %}{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set ns.x = [ns.x, s.split()] %}{% endfor %}",
        "{% for i in range(99999) %}{% macro f() %}{% endmacro %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = namespace(a=[1, 2, 3]) %}{% endfor %}",
    ] {
        let error = within(60, move || render(source)).expect_err(source);
        assert!(error.ends_with("bytes of values"), "{source}: {error}");
    }
}

#[test]
fn variables_far_outside_are_paid_for() {
    let wide = "{% for i in [1] %}".repeat(30) + "{% set x = messages %}" + &"{% endfor %}".repeat(30);
    assert!(render(&wide).is_ok());
    let deep = "{% for i in [1] %}".repeat(100)
        + "{% for j in range(50000) %}{% set x = messages %}{% endfor %}"
        + &"{% endfor %}".repeat(100);
    assert!(render(&deep).unwrap_err().ends_with("takes too many steps"));
    let recursive = "{% for i in [[[[1]]]] recursive %}{{ loop.depth }}{{ loop(i) if i is iterable }}{% endfor %}";
    assert_eq!(render(recursive), Ok("1234".to_owned()));
    let endless =
        "{% for i in [[1]] recursive %}{% with %}{% with %}{{ loop([[1]]) }}{% endwith %}{% endwith %}{% endfor %}";
    assert!(render(endless).unwrap_err().ends_with("recurses too deeply"));
}

#[test]
fn errors_are_short_whatever_a_template_puts_into_them() {
    for source in [
        "{{ raise_exception('é' * 999999) }}",
        "{{ [1] | map('é' * 999999) | list }}",
        "{{ ('%(' ~ 'é' * 999999 ~ ')s') % {} }}",
        "{{ ('{' ~ 'é' * 999999 ~ '}').format(1) }}",
        "{{ '{:{x}}'.format(1, x='é' * 999999) }}",
    ] {
        let error = render(source).expect_err(source);
        assert!(error.len() < 2100, "{source}: {} bytes", error.len());
    }
}

#[test]
fn namespaces_in_rings_and_long_chains_are_let_go_of() {
    let chain = "{% set h = namespace(c=namespace()) %}{% for i in range(20000) %}{% set c = h.c %}\
                 {% set c.n = namespace(b=h) %}{% set h.c = c.n %}{% endfor %}ok";
    assert_eq!(within(60, move || render(chain)), Ok("ok".to_owned()));
}

#[test]
fn fuel_lets_honest_conversations_pass() {
    let mut messages = String::from(r#"[{"role": "system", "content": "Be brief."}"#);
    for turn in 0..2000 {
        let role = ["user", "assistant"][turn % 2];
        write!(messages, r#", {{"role": "{role}", "content": "{}"}}"#, "some words and more ".repeat(20)).unwrap();
    }
    messages.push(']');
    let tool =
        r#"{"type": "function", "function": {"name": "f", "description": "does it", "parameters": {"a": [1, 2]}}}"#;
    let tools = format!("[{}]", vec![tool; 200].join(","));
    let (messages, tools) = (Json::parse(&messages).unwrap(), Json::parse(&tools).unwrap());
    let source = "{% for tool in tools %}{{ tool | tojson(indent=2) }}{% endfor %}{% for m in messages %}\
                  {% set text = m.content.split('</think>')[-1].strip() %}{{ '<' + m.role + '>' + text + '\\n' }}{% endfor %}";
    let kwargs = Map::new();
    let input = RenderInput { tools: Some(&tools), ..input(&messages, &kwargs) };
    assert!(compile(source).unwrap().render(&input).unwrap().len() > 800_000);
}

#[test]
fn renderings_on_many_threads_agree() {
    let template = compile("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content | length %}{% endfor %}{{ ns.n }}").unwrap();
    std::thread::scope(|scope| {
        for length in 1..9 {
            let template = &template;
            scope.spawn(move || {
                let text = format!(r#"[{{"role": "user", "content": "{}"}}]"#, "x".repeat(length));
                let messages = Json::parse(&text).unwrap();
                for _ in 0..50 {
                    assert_eq!(template.render(&input(&messages, &Map::new())).unwrap(), length.to_string());
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn text_passes_through_unchanged(text in ".*") {
        let Json::Object(kwargs) = Json::Object([("s".into(), Json::from(text.as_str()))].into_iter().collect()) else {
            unreachable!()
        };
        let messages = Json::parse(r#"[{"role": "user", "content": "x"}]"#).unwrap();
        let show = |source: &str| compile(source).unwrap().render(&input(&messages, &kwargs)).unwrap();
        prop_assert_eq!(show("{{ s }}"), text.clone());
        prop_assert_eq!(show("{{ s ~ '' }}{{ s[:0] }}"), text.clone());
        prop_assert_eq!(show("{{ s[::-1][::-1] }}"), text.clone());
        prop_assert_eq!(show("{{ s | list | join }}"), text.clone());
        prop_assert_eq!(show("{{ s.split('a') | join('a') }}"), text.clone());
        // What `tojson` writes is JSON of the same text, ASCII or not.
        for source in ["{{ s | tojson }}", "{{ s | tojson(ensure_ascii=true) }}"] {
            let shown = show(source);
            let back = Json::parse(&shown).unwrap();
            prop_assert_eq!(back.as_str(), Some(text.as_str()));
        }
        prop_assert!(show("{{ s | tojson(ensure_ascii=true) }}").is_ascii());
    }

    #[test]
    fn any_source_compiles_or_is_refused(source in "([ -~\n]|\\{\\{|\\}\\}|\\{%|%\\}|if |for |in |end|set |é){0,60}") {
        if let Ok(template) = compile(&source) {
            let messages = Json::parse(r#"[{"role": "user", "content": "x"}]"#).unwrap();
            let _ = template.render(&input(&messages, &Map::new()));
        }
    }

    #[test]
    fn text_without_tags_is_the_prompt(source in "[a-zé \n.,'\"%}#]{0,60}") {
        let want = source.strip_suffix('\n').unwrap_or(&source);
        prop_assert_eq!(compile(&source).unwrap().render(&input(
            &Json::parse(r#"[{"role": "user", "content": "x"}]"#).unwrap(), &Map::new())).unwrap(), want);
    }
}
