"""Which URLs and which addresses are let through."""

import socket
from ipaddress import ip_address, ip_network

import pytest

from app.apps.fetching.connecting import is_open, look_up
from app.apps.fetching.targets import HostRules, parse_target
from app.config.fetching import FetchConfig
from app.errors import ConfigError, UrlRefused

ANY = HostRules(("*",), (80, 443))


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("http://Example.org", "http://example.org/"),
        ("HTTPS://example.org:443/a%20b?q=%2F#frag", "https://example.org/a%20b?q=%2F"),
        ("http://example.org./x", "http://example.org/x"),
        ("https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"),
        ("http://192.0.2.1/", "http://192.0.2.1/"),
        ("http://[2001:DB8::1]/", "http://[2001:db8::1]/"),
        ("http://example.org/wiki/@home?mail=a@b", "http://example.org/wiki/@home?mail=a@b"),
        ("http://example.org?mail=a@b", "http://example.org/?mail=a@b"),
        ("http://a.b-c.example:80", "http://a.b-c.example/"),
    ],
)
def test_urls_in_their_one_form(url, whole):
    assert str(parse_target(url, ANY)) == whole


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "must begin with http"),
        ("example.org/x", "must begin with http"),
        ("ftp://example.org/", "must begin with http"),
        ("javascript:alert(1)", "must begin with http"),
        ("//example.org/", "must begin with http"),
        ("http:///x", "not a name"),
        ("http:example.org", "not a name"),
        ("http://user@example.org/", "user's name"),
        ("http://user:word@example.org/", "user's name"),
        ("http://@example.org/", "user's name"),
        ("http://example.org\\@127.0.0.1/", "backslashes"),
        (" http://example.org/", "white space"),
        ("http://example.org/\r\nHost: x", "white space"),
        ("http://exa\tmple.org/", "white space"),
        ("http://2130706433/", "address in disguise"),
        ("http://127.1/", "address in disguise"),
        ("http://0x7f.0.0.1/", "address in disguise"),
        ("http://0x7f000001/", "address in disguise"),
        ("http://0177.0.0.1/", "cannot be read"),
        ("http://127.0.0.1.:80/x.", None),
        ("http://1.2.3.4.5/", "address in disguise"),
        ("http://１２７.０.０.１/", "cannot be read"),
        ("http://①②⑦.0.0.1/", "cannot be read"),
        ("http://127%2e0%2e0%2e1/", "not a name"),
        ("http://%31%32%37.0.0.1/", "not a name"),
        ("http://[fe80::1%25eth0]/", "zone|not a name"),
        ("http://[::1/", "cannot be read"),
        ("http://a..b/", "not a name"),
        ("http://-a.example/", "not a name"),
        ("http://" + "a" * 64 + ".example/", "not a name|cannot be read"),
        ("http://example.org:99999/", "port"),
        ("http://example.org:0/", "port"),
        ("http://example.org:8080/", "port 8080 .* not among the allowed ports"),
        ("http://example.org/" + "a" * 3000, "longer than 2048"),
    ],
)
def test_urls_that_are_refused(url, words):
    if words is None:
        assert parse_target(url, ANY).host == "127.0.0.1"  # a last dot changes nothing: the address is checked later
        return
    with pytest.raises(UrlRefused, match=words):
        parse_target(url, ANY)


@pytest.mark.parametrize(
    ("rule", "host", "allowed"),
    [
        ("*.wikipedia.org", "en.wikipedia.org", True),
        ("*.wikipedia.org", "a.b.wikipedia.org", True),
        ("*.wikipedia.org", "wikipedia.org", False),
        ("*.wikipedia.org", "evilwikipedia.org", False),
        ("*.wikipedia.org", "en.wikipedia.org.evil.example", False),
        ("wikipedia.org", "wikipedia.org", True),
        ("wikipedia.org", "en.wikipedia.org", False),
        ("*", "anything.example", True),
    ],
)
def test_the_list_of_hosts(rule, host, allowed):
    assert HostRules((rule,), (80,)).allow_host(host) is allowed


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.0.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1"),
        *("169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16", "198.18.0.1"),
        *("192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::ffff:0:127.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a00:1::1"),
        "2001:0:7f00:1::1",
    ],
)
def test_addresses_that_are_not_public(address):
    assert not is_open(ip_address(address))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "208.80.154.224", "2620:0:861:ed1a::1", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_addresses_that_are_public(address):
    assert is_open(ip_address(address))


def test_private_networks_open_what_they_hold_and_no_more():
    own = (ip_network("10.1.0.0/16"),)
    assert is_open(ip_address("10.1.2.3"), own)
    assert is_open(ip_address("::ffff:10.1.2.3"), own)
    assert not is_open(ip_address("10.2.0.1"), own)
    assert not is_open(ip_address("127.0.0.1"), own)


async def test_the_machines_resolver_gives_each_address_once():
    assert await look_up("127.0.0.1", 80) == ["127.0.0.1"]
    with pytest.raises(socket.gaierror):
        await look_up("no-such-host.invalid", 80)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("mediawikiUrl", "ftp://x/api.php", "must be a whole address"),
        ("mediawikiUrl", "https://user@x/api.php", "must be a whole address"),
        ("allowedHosts", ["https://x"], "must be a host's name"),
        ("allowedHosts", ["*x.org"], "must be a host's name"),
        ("allowedPorts", [0], "greater than or equal to 1"),
        ("privateNetworks", ["10.0.0.1/8"], "not a valid IPv4 or IPv6 network"),
        ("contentTypes", [], "at least 1"),
        ("contentTypes", ["Text/HTML"], "must be a media type in small letters, like text/html"),
        ("contentTypes", ["text/ü"], "must be a media type"),
        ("contentTypes", ["text/html\r\nX: y"], "must be a media type"),
        ("maxBytes", 1, "1024"),
        ("timeoutSeconds", 0, "greater than 0"),
        ("proxy", "x", "no such key"),
    ],
)
def test_configurations_that_are_refused(key, value, words):
    with pytest.raises(ConfigError, match=words):
        FetchConfig.parse({key: value}, "fetch")


def test_by_default_wikipedia_alone_is_open():
    config = FetchConfig()
    rules = HostRules(config.allowed_hosts, config.allowed_ports)
    assert parse_target("https://de.wikipedia.org/wiki/Otter", rules).host == "de.wikipedia.org"
    with pytest.raises(UrlRefused):
        parse_target("https://example.org/", rules)
    assert config.private_networks == ()
