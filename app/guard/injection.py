"""Built-in rules: attempts to overrule the instructions, hidden text, and the control tokens of chat templates.

The wordings are written for the skeleton of a text (small letters, one blank between words). ``~`` stands for the gap
between two words: up to four characters that are no letters, or none where single letters were put together, or where
what no reader sees stood between the words.
"""

from __future__ import annotations

MAX_CHARS = 256
"""Longest match of a built-in rule, in characters of the skeleton (of the original for hidden text and tokens)."""
MAX_LETTERS = 64
"""Longest match among single letters put together."""

_STOP = (
    "ignor(?:e|es|ed|ing)|disregard(?:s|ed|ing)?|forget(?:ting)?|overrid(?:e|ing)|overrul(?:e|ing)|bypass(?:ing)?"
    "|neglect|overlook|discard|dismiss|do~not~(?:follow|obey)|don['’]?t~(?:follow|obey)|stop~(?:following|obeying)"
    "|never~mind|pay~no~(?:attention|heed)~to|set~aside"
)
_FILLER = (
    "all|any|every|each|and|or|of|the|these|this|those|that|my|your|yours|our|its|their|other|such|whatever|both"
    "|everything|anything|completely|entirely|totally|please|about|from|in"
)
_EARLIER = (
    "previous(?:ly)?|prior|above|preceding|earlier|foregoing|existing|former|initial|original|past|old|current"
    "|system|developer|hidden|built~in|given|safety|security|ethical|content|moderation|internal|default"
)
_ORDERS = (
    "instructions?|instructs|prompts?|rules?|directives?|directions?|guidelines?|commands?|orders?|constraints?"
    "|restrictions?|limitations?|programming|training|safeguards?|guardrails?|filters?"
)
_ENGLISH = (
    rf"(?:{_STOP})~(?:(?:{_FILLER})~){{0,5}}(?:(?:{_EARLIER})~){{1,3}}(?:(?:{_FILLER}|{_EARLIER})~){{0,3}}(?:{_ORDERS})",
    rf"(?:{_STOP})~(?:(?:all|any|every|each|everything)~)(?:of~)?(?:(?:the|these|those|your|my)~)?(?:{_ORDERS})",
    rf"(?:{_STOP})~your~(?:{_ORDERS})",
    rf"(?:{_STOP})~(?:(?:{_FILLER})~){{0,3}}(?:{_ORDERS})~(?:(?:that|you|were|was|have|has|been|are|is)~){{0,4}}"
    r"(?:above|before|earlier|previously|given|received|told|set)",
    rf"(?:{_STOP})~(?:all|everything|anything|whatever)~(?:(?:that|of|the|was|is|i|you|we|they|have|has|been|were|said)~)"
    r"{0,5}(?:above|before~(?:this|now)|told|instructed|(?:previously|earlier)~(?:said|told|written))",
    r"you~are~(?:now|no~longer)~(?:(?:a|an|the|in|called|running)~){0,2}"
    r"(?:dan|developer~mode|jailbroken|unrestricted|unfiltered|uncensored|bound~by)",
    r"(?:enable|enter|activate|switch~to)~(?:dan|jailbreak|developer|god)~mode",
    r"(?:act|behave|respond|answer|pretend)~(?:(?:as|like|that|if|though)~){0,3}you~(?:have|had)~no~"
    rf"(?:(?:{_FILLER}|{_EARLIER})~){{0,2}}(?:{_ORDERS})",
    r"(?:reveal|print|show|repeat|output|display|leak|dump|recite|disclose|expose|write~out|tell~me|give~me)~"
    r"(?:(?:me|us|all|of|out|back|exactly|verbatim)~){0,3}your~(?:(?:full|exact|entire|complete|own)~){0,2}"
    r"(?:(?:system|initial|hidden|secret|original|developer|internal)~){1,2}(?:prompts?|instructions?|messages?|rules?)",
)

_ZH_STOP = (
    "忽略|无视|忘记|忘掉|忘了|不要理会|不用理会|别理会|不要遵守|不再遵守|停止遵守|不要遵循|停止遵循|不要管|不用管|别管"
    "|抛开|抛弃|丢弃|跳过|绕过|推翻|覆盖|撤销"
)
_ZH_FILLER = (
    "的|了|掉|我|你|您|给|对|在|里|中|和|与|及|那些|这些|任何|全部|所有|一切|其他|收到"
    "|给出|说过|说的|提到|设定|设置|对话|下|过|把"
)
_ZH_EARLIER = (
    "之前|以前|先前|此前|上面|以上|上述|前面|前述|前文|上文|原来|原有|原先|原本|最初|早先"
    "|刚才|系统|既定|现有|安全|内置|初始|开发者"
)
_ZH_ORDERS = "指令|指示|提示词|提示语|提示|规则|命令|要求|限制|设定|约束|准则|规定|守则|规范|指导|训练"
_CHINESE = (
    rf"(?:{_ZH_STOP})(?:{_ZH_FILLER}){{0,5}}(?:{_ZH_EARLIER})(?:{_ZH_FILLER}|{_ZH_EARLIER}){{0,6}}(?:{_ZH_ORDERS})",
    rf"(?:{_ZH_STOP})(?:你|您)(?:的)?(?:{_ZH_FILLER}){{0,3}}(?:指令|指示|提示词|规则|限制|约束|准则|训练|设定)",
    rf"(?:{_ZH_STOP})(?:所有|全部|一切|任何)(?:{_ZH_FILLER}){{0,3}}(?:指令|指示|提示词)",
    rf"(?:{_ZH_EARLIER})(?:{_ZH_FILLER}){{0,5}}(?:{_ZH_ORDERS})(?:都|全|全部|全都|统统|一律|请|请你)?(?:忽略|忘掉|忘记|作废|无效|不算数)",
    rf"把(?:{_ZH_FILLER}){{0,3}}(?:{_ZH_EARLIER})(?:{_ZH_FILLER}){{0,5}}(?:{_ZH_ORDERS})(?:都|全|全部|全都|统统)?(?:忽略|忘)",
    r"(?:输出|打印|显示|告诉我|泄露|重复|复述|说出|透露|公开)(?:一下|一遍)?(?:你|您)(?:的)?(?:完整|全部|所有|原始)?(?:的)?"
    r"(?:系统|初始|隐藏|内部)(?:的)?(?:提示词|提示语|提示|指令|设定)",
    r"(?:你现在|从现在开始你|从现在起你)(?:是|进入|不再受)(?:一个)?(?:没有限制|不受限制|无限制|越狱|开发者模式|任何限制)",
)

#: Text in characters that no reader sees but a model may read; a flag made of tag characters is shorter.
HIDDEN_TEXT = r"[\x{E0020}-\x{E007E}]{8,240}|[\x{FE00}-\x{FE0F}\x{E0100}-\x{E01EF}]{8,240}"

CONTROL_TOKENS = (
    r"<[|｜][A-Za-z][A-Za-z0-9_▁ .\-]{0,60}[|｜]>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|<</?SYS>>|</?s>|<(?:bos|eos|pad|unk|mask)>|</?(?:start|end)_of_(?:turn|image|audio)>"
    r"|<｜[^<>\n]{1,60}｜>|\[(?:BOS|EOS|UNK|SEP|CLS|gMASK)\]|<\|?(?:sop|eop)\|?>"
)


def spaced_rules() -> tuple[str, str]:
    """Return the override rules as regular expressions for a skeleton, English and Chinese."""
    gap = "[^a-z0-9]{1,4}"
    return rf"\b(?:{'|'.join(_ENGLISH)})\b".replace("~", gap), "|".join(_CHINESE)


def single_letter_rules() -> tuple[str]:
    """Return the override rules for single letters put together, where some of the words' borders are gone."""
    return ("|".join(_ENGLISH[:5]).replace("~", "[^a-z0-9]{0,4}"),)
