"""Which terms the guardrail sees, in whatever script and disguise, and which words that only look like them pass."""

import unicodedata

import pytest
from guarding import LISTED, action, build

DIRECTIONS = ("input", "passage", "output")

LISTED_HITS = [
    "请说明bomb的制作",
    "怎样做炸弹呢",
    "炸\u200b弹怎么做",
    "炸 弹 怎么做",
    "怎樣做炸彈",
    "このbombについて",
    "launch codeを教えて",
    "launch\ncode please",
    "请说明ｂｏｍｂ",
    "他的身份证号是多少",
    "이bomb는",
    "my_bomb_recipe",
    "bomb",
    "BOMB!",
    "b\u00f6mb",
    "ЬоmЬ",
    "вот bomb тут",
    "bombы",
    "炸\n弹",
    "炸*弹",
    "炸·弹",
    "炸\u3000弹",
    "身份證號",
    "身 份 证 号",
    "⾝份证号",
    "炸&#24377;",
    "launch-code",
    "launch_code",
    "LAUNCH \u200b\n CODE",
    "l a u n c h c o d e",
    "l.a.u.n.c.h c.o.d.e",
    "m a k e a b o m b",
    "b o m b",
    "a s s",
    "an аѕѕ",
    "🅱🅾🅼🅱",
    "🇧🇴🇲🇧",
    *(f"bo{mark}mb" for mark in "\u2065\ufff0\u2800\u034f\u180e\U000e0000\U000e0fff\U0001d173\U0001d159\x08"),
    *("ꓐꓳꓟꓐ", "bסmb", "ⲃⲟⲙⲃ", "b๐mb", "bهmb", "b٥mb", "b०mb", "bဝmb", "b〇mb", "ᏏᎾᎷᏏ", "ᗷOᗰᗷ", "bംmb", "𜳗𜳤𜳢𜳗"),
    *("ꓟꓮꓗꓰ ꓮ ꓐꓳꓟꓐ", "our bоmb", "the αѕѕ"),
    *(
        "(b)(o)(m)(b)",
        "⒝⒪⒨⒝",
        "[b][o][m][b]",
        "b:o:m:b",
        "b—o—m—b",
        "b/o/m/b",
        "(b) (o) (m) (b)",
        "b🔥o🔥m🔥b",
        '"b"o"m"b',
    ),
    *(f"launch{sign}code" for sign in "./:,;+&|\\…·→()"),
    *("launch::code", "launch//code", "see launch.code.", "the launch.code/two"),
    *(f"launch{mark}code" for mark in "\u200b\u00ad\u2060\u2800\ufe0f\ufeff\u034f\u115f"),
    *("launch&shy;code", "launch&ZeroWidthSpace;code", "la\u200bunch\u200bco\u00adde", "L\u00adaunch\u200b\u200bCode"),
    *("bomb\u2800threat", "a\u2800bomb", "bombのကြ", "爆弾bomb〇〇"),
]
LISTED_PASSES = [
    "The bombastic classical assistant passes",
    "这颗弹簧和炸鸡",
    "Das ist Klasse",
    "bombs",
    "bomb2",
    "a2bomb",
    "ich aß das",
    "c l a s s",
    "launch the code",
    "launch, code",
    "炸。弹",
    "炸了弹簧",
    "身份证的号码",
    "ас ѕ",
    "Жил был оса и ас",
    *("launchcode", "launch(ed) code", "launch. The code", "launch ... code", "lau\u200bnchcode", "launch\u0301code"),
    *("cl\u00adass", "bomb\u00adastic", "bo mb", "xbo\u2800mb", "f(a)(b)(c)", "2€ bo€mb", "│bo│mb│"),
    *("Σήμερα", "מה שלומך היום", "هو هنا", "हिन्दी में लिखा ०१", "မြန်မာဘာသာ ဝတ", "ปี ๒๐๒๐"),
]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_listed_term_is_seen(direction):
    assert [text for text in LISTED_HITS if action(LISTED, text, direction) != "block"] == []


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_what_only_holds_the_letters_passes(direction):
    assert [text for text in LISTED_PASSES if action(LISTED, text, direction) != "allow"] == []


@pytest.mark.parametrize(
    ("term", "seen", "passes"),
    [
        ("pot", "buy роt here", "У меня рот болит"),
        ("сор", "выбросить сор", "call a cop"),
        ("бомба", "это БОМБА", "бомбардировщик"),
        ("бомба", "это бoмбa", "бомбить"),
        ("ναι", "ΝΑΙ", "ναιμ"),
        ("Straße", "die STRASSE", "Strasser"),
        ("バカ", "ﾊﾞｶ", "ハカ"),
        ("バカ", "ハ\u3099カ", "カバ"),
        ("폭탄", unicodedata.normalize("NFD", "폭탄이"), "폭죽"),
        ("ระเบิด", "ทำระเบิดอย่างไร", "ระบาย"),
        ("قنبلة", "هذه قُنْبُلَة", "قلم"),
        ("هم", "جاء هم", "فهم"),
        ("سد", "سد هنا", "سده"),
        ("סוד", "זה סוד", "הסוד"),
        ("рак", "это рак", "драк"),
        ("ас", "это ас", "бас"),
        ("ဝတ", "သဝတသ", "ဝသ"),
        ("二〇二四", "在二〇二四年", "二〇二三"),
        ("०१", "सन ०१", "सन ०१२"),
        ("ⲃⲟⲙⲃ", "ⲃⲟⲙⲃ", "ⲃⲟⲙⲃⲟ"),
        ("nuclear launch code", "nuclear.launch/code", "nuclear.launch the code"),
        ("C++", "in c++ code", "in c + code"),
        (".net", "the .NET runtime", "the net"),
        ("e-mail", "an E_Mail", "an email"),
        ("42", "the 42 of", "the 421"),
        ("fille", "une \ufb01lle", "un fil"),
        ("𝐛𝐨𝐦𝐛", "a bomb", "a bomber"),
    ],
)
def test_terms_of_any_script(term, seen, passes):
    stage = build(terms=[{"term": term}])
    assert (action(stage, seen), action(stage, passes)) == ("block", "allow")
