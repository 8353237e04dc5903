"""What command lines take as numbers and addresses."""

import argparse

import pytest

from app.ops.arguments import gateway, number, whole
from app.ops.top.__main__ import main as top_main


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e300", "-1", "0", "", "x"])
def test_no_number_that_no_clock_knows(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"must be a number from 0\.2 to 3600"):
        number(0.2, 3600)(text)


@pytest.mark.parametrize("text", ["1.5", "-1", "11", "1" * 5000, "", "--1", "٣", "1_0"])
def test_no_number_that_is_not_whole_and_within(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number from 0 to 10"):
        whole(0, 10)(text)


def test_numbers_within_are_read():
    assert (number(0.2, 3600)("0.2"), whole(-1, 10)("-1"), whole(0, 10)("10")) == (0.2, -1, 10)


@pytest.mark.parametrize(
    "text", ["http://a:8000", "http://a:8000/", "http://a:8000/v1", "http://a:8000/v1/", " http://a:8000"]
)
def test_an_address_may_end_as_openais_clients_write_it(text):
    assert gateway(text) == "http://a:8000"


def test_a_path_before_the_api_stays():
    assert gateway("https://a/baton/v1") == "https://a/baton"


@pytest.mark.parametrize(
    "text", ["a:8000", "http://", "ftp://a", "http://a:x", "http://a:0", "http://a?x=1", "http://[a", ""]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no address: write it like http://localhost:8000"):
        gateway(text)


@pytest.mark.parametrize(
    "wrong", [["--interval", "inf"], ["--interval", "-1"], ["--window", "nan"], ["--window", "1e300"]]
)
def test_the_board_refuses_times_that_would_never_pass(wrong, capsys):
    with pytest.raises(SystemExit) as stopped:
        top_main(wrong)
    assert stopped.value.code == 2
    assert f"argument {wrong[0]}: must be a number from" in capsys.readouterr().err
