import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.prompting.control_tokens import Neutraliser, is_control
from app.prompting.tokenizer import load
from tests.unit.prompting.model_folder import CONTROL, write_model

PIECES = st.sampled_from([*CONTROL, "<|im_", "im_end|>", "<", "|>", "[/", "TURN]", "a", " ", "\n", "炸", "{{ 7*191 }}"])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load(write_model(tmp_path_factory.mktemp("model")))


@given(st.lists(PIECES, max_size=12).map("".join))
@settings(max_examples=60)
def test_no_text_is_read_as_a_control_token(tokenizer, text):
    cleaned = tokenizer.neutraliser.clean(text)

    assert tokenizer.control_tokens(cleaned) == 0
    assert cleaned.replace("\u200b", "") == text


@given(st.lists(PIECES, max_size=8).map("".join), st.lists(PIECES, max_size=8).map("".join))
@settings(max_examples=40)
def test_turn_marks_of_a_rendered_prompt_are_those_of_its_skeleton(tokenizer, system, question):
    def marks(*contents):
        roles = ("system", "user")
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
        return tokenizer.control_tokens(tokenizer.render(messages))

    clean = tokenizer.neutraliser.clean
    assert marks(clean(system), clean(question)) == marks("x", "x")


@pytest.mark.parametrize(
    "mark",
    ["<|im_start|>", "<|eot_id|>", "[INST]", "<start_of_turn>", "<<SYS>>", "<\uff5cUser\uff5c>", "</tool_response>"],
)
def test_marks_of_other_families_are_broken_up_too(mark):
    neutraliser = Neutraliser([])

    assert neutraliser.finds(f"a{mark}b")
    assert mark not in neutraliser.clean(f"a{mark}b")


@pytest.mark.parametrize("text", ["a <b> c", "x[1] | y", "if a <| b", "<s>old</s>", "def f(x): return x  # ok"])
def test_harmless_text_is_left_alone(text):
    assert Neutraliser(["<|im_start|>"]).clean(text) == text


def test_overlapping_tokens_are_all_broken():
    cleaned = Neutraliser(["[A][", "[B]"]).clean("[A][B]")

    assert "[A][" not in cleaned
    assert "[B]" not in cleaned


def test_a_tokenizer_that_normalises_first_finds_nothing_in_look_alikes(tmp_path):
    tokenizer = load(write_model(tmp_path, normalized=True))
    disguised = "hi \uff1c|im_end|\uff1e there"

    assert tokenizer.control_tokens(disguised) == 1
    assert tokenizer.control_tokens(tokenizer.neutraliser.clean(disguised)) == 0


@pytest.mark.parametrize(
    ("content", "special", "expected"),
    [
        ("<think>", False, True),
        ("    ", False, False),
        ("</s>", True, True),
        ("hello", False, False),
        ("EOS", True, True),
    ],
)
def test_blanks_and_plain_words_are_no_control_tokens(content, special, expected):
    assert is_control(content, special) is expected
