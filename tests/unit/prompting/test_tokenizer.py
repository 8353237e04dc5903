import json

import pytest

from app.errors import ConfigError, InvalidRequest
from app.prompting.tokenizer import load
from tests.unit.prompting.model_folder import CHATML, write_model

HELLO = [{"role": "user", "content": "hello"}]


def test_counts_equal_the_tokenizers_own_on_the_whole_prompt(tmp_path):
    tokenizer = load(write_model(tmp_path))
    messages = [{"role": "system", "content": "Du. 你好 "}, {"role": "user", "content": "a b  c\n\nd" * 900}]
    rendered = tokenizer.render(messages)

    expected = len(tokenizer._encode(rendered).ids)
    assert tokenizer.count(rendered, 10**6) == expected
    assert tokenizer.count(rendered, 10**6) == expected, "the second count comes from the cache"


def test_texts_far_over_the_limit_are_given_up_early(tmp_path):
    tokenizer = load(write_model(tmp_path))
    pieces = []
    encode = tokenizer._encode
    tokenizer._encode = lambda text: pieces.append(len(text)) or encode(text)

    assert tokenizer.count("ant " * 500_000, 1000) > 1000
    assert sum(pieces) < 20_000


def test_a_template_of_the_engines_own_choice_is_used(tmp_path):
    folder = write_model(tmp_path / "model")
    file = tmp_path / "other.jinja"
    file.write_text("{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}", "utf-8")

    assert load(folder, str(file)).render(HELLO) == "[user: hello]"


def test_the_template_file_beside_the_tokenizer_wins(tmp_path):
    folder = write_model(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}", "utf-8")

    assert load(folder).render(HELLO) == "<|endoftext|>hello"


def test_named_templates_and_tools(tmp_path):
    named = [
        {"name": "default", "template": CHATML},
        {"name": "tool_use", "template": "{{ tools | tojson }}|{{ messages[0].content }}"},
    ]
    tokenizer = load(write_model(tmp_path, named))

    assert tokenizer.render(HELLO).startswith("<|im_start|>user\nhello")
    assert tokenizer.render(HELLO, [{"a": "<é>"}]) == '[{"a": "<é>"}]|hello'


def test_templates_that_want_parts_get_parts(tmp_path):
    tokenizer = load(write_model(tmp_path, "{% for p in messages[0].content %}{{ p.text }}{% endfor %}"))

    assert tokenizer.content_as_parts
    assert tokenizer.render(HELLO) == "hello"


def test_a_template_without_a_system_role_is_noticed(tmp_path):
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML

    assert not load(write_model(tmp_path, template)).takes_system


def test_a_template_that_refuses_the_turns_is_the_callers_error(tmp_path):
    template = "{% if messages | length > 1 %}{{ raise_exception('one turn only') }}{% endif %}" + CHATML
    tokenizer = load(write_model(tmp_path, template))

    with pytest.raises(InvalidRequest, match="one turn only"):
        tokenizer.render(HELLO * 2)


def test_generation_marks_and_loop_controls_render(tmp_path):
    template = (
        "{% for m in messages %}{% if m.role == 'x' %}{% continue %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    assert load(write_model(tmp_path, template)).render(HELLO) == "hello"


def test_templates_run_in_a_sandbox(tmp_path):
    template = "{{ messages[0].content }}{% if messages | length > 1 %}{{ ''.__class__.__mro__ }}{% endif %}"
    tokenizer = load(write_model(tmp_path, template))

    with pytest.raises(InvalidRequest):
        tokenizer.render(HELLO * 2)


@pytest.mark.parametrize("missing", ["folder", "template"])
def test_a_folder_that_cannot_serve_is_named(tmp_path, missing):
    folder = write_model(tmp_path, None) if missing == "template" else None
    if folder is None:
        (tmp_path / "tokenizer.json").write_text("{", "utf-8")

    with pytest.raises(ConfigError, match=str(tmp_path)):
        load(str(tmp_path))


def test_a_lone_surrogate_is_replaced_before_the_tokenizer_sees_it(tmp_path):
    tokenizer = load(write_model(tmp_path))

    assert tokenizer.neutraliser.clean(json.loads('"a\\ud800b"')) == "a\ufffdb"


def test_the_files_of_an_id_are_fetched_where_that_is_allowed(tmp_path, monkeypatch):
    folder = write_model(tmp_path / "model")
    asked = []

    def download(model, allow_patterns):
        asked.append((model, "*.safetensors" in allow_patterns))
        return folder

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert load("org/model", local_files_only=False).render(HELLO)
    assert asked == [("org/model", False)]
    assert load(folder, local_files_only=False).render(HELLO)
    assert len(asked) == 1, "a folder is no id"


def test_an_id_that_cannot_be_fetched_is_named(monkeypatch):
    def download(model, allow_patterns):
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ConfigError, match=r"no tokenizer could be loaded from 'org/model': 'OSError: no route'"):
        load("org/model", local_files_only=False)
