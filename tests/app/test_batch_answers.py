"""A batch on the real engine: killed in the middle, complete in the end, and equal to what is answered online."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.app.baton import MODEL, START_SECONDS
from tests.app.test_batch import batch, kill_in_the_middle, results, write_rows

ROWS, COMPARED = 200, 100
#: Without retrieval and penalties, so that the engine's own choice of each token can be looked at.
GREEDY = {"model": MODEL, "profile": "plain", "temperature": 0, "frequency_penalty": 0, "max_tokens": 16}
#: Log probabilities that are nearer than this are a tie: sums in another order differ by about a millionth.
TIE = 1e-3


def tokens(reply):
    return [token["token"] for token in reply["choices"][0]["logprobs"]["content"]]


def is_a_tie(online, offline):
    """Tell whether two answers part at a token that was as likely as the other one."""
    place = next(n for n, pair in enumerate(zip(tokens(online), tokens(offline), strict=False)) if pair[0] != pair[1])
    likeliest = online["choices"][0]["logprobs"]["content"][place]["top_logprobs"]
    weights = {token["token"]: token["logprob"] for token in likeliest}
    return abs(weights[tokens(online)[place]] - weights.get(tokens(offline)[place], float("-inf"))) < TIE


@pytest.mark.timeout(START_SECONDS)
def test_200_rows_survive_a_kill_and_equal_the_online_answers(baton, tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    asked = GREEDY | {"logprobs": True, "top_logprobs": 2}
    write_rows(source, ROWS, **asked)
    kept = kill_in_the_middle(baton.base, source, target, ROWS // 2)
    assert ROWS // 2 <= kept < ROWS
    done = batch(baton.base, source, target)
    assert done.returncode == 0, done.stderr
    found = results(target)
    assert [row["custom_id"] for row in found] == [f"question-{number}" for number in range(ROWS)]

    def compared(number):
        online = baton.chat(f"Tell me of {number}.", **asked).json()
        return online, found[number]["response"]["body"]

    with ThreadPoolExecutor(4) as pool:
        pairs = list(pool.map(compared, range(0, ROWS, ROWS // COMPARED)))
    apart = [pair for pair in pairs if tokens(pair[0]) != tokens(pair[1])]
    print(f"\nkilled after {kept} rows; {len(apart)} of {COMPARED} answers differ from online; {done.stdout.strip()}")
    assert len(apart) <= COMPARED // 100
    assert all(is_a_tie(*pair) for pair in apart)
