from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChatRequest(_message.Message):
    __slots__ = ("messages", "model", "profile", "priority", "timeout_seconds", "max_tokens", "n", "n_candidates", "temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop", "top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "logprobs", "top_logprobs", "response_format", "tools", "tool_choice", "rag", "user")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    N_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    RAG_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    model: str
    profile: str
    priority: str
    timeout_seconds: float
    max_tokens: int
    n: int
    n_candidates: int
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    top_k: int
    min_p: float
    repetition_penalty: float
    min_tokens: int
    ignore_eos: bool
    logprobs: bool
    top_logprobs: int
    response_format: str
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    tool_choice: str
    rag: Rag
    user: str
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., model: _Optional[str] = ..., profile: _Optional[str] = ..., priority: _Optional[str] = ..., timeout_seconds: _Optional[float] = ..., max_tokens: _Optional[int] = ..., n: _Optional[int] = ..., n_candidates: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., min_tokens: _Optional[int] = ..., ignore_eos: _Optional[bool] = ..., logprobs: _Optional[bool] = ..., top_logprobs: _Optional[int] = ..., response_format: _Optional[str] = ..., tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ..., tool_choice: _Optional[str] = ..., rag: _Optional[_Union[Rag, _Mapping]] = ..., user: _Optional[str] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "content", "parts", "name", "tool_calls", "tool_call_id")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    parts: _containers.RepeatedCompositeFieldContainer[ContentPart]
    name: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    tool_call_id: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[ContentPart, _Mapping]]] = ..., name: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., tool_call_id: _Optional[str] = ...) -> None: ...

class ContentPart(_message.Message):
    __slots__ = ("text", "image_url")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_URL_FIELD_NUMBER: _ClassVar[int]
    text: str
    image_url: str
    def __init__(self, text: _Optional[str] = ..., image_url: _Optional[str] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("name", "description", "parameters", "strict")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters: str
    strict: bool
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters: _Optional[str] = ..., strict: _Optional[bool] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("id", "type", "function", "index")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: str
    function: FunctionCall
    index: int
    def __init__(self, id: _Optional[str] = ..., type: _Optional[str] = ..., function: _Optional[_Union[FunctionCall, _Mapping]] = ..., index: _Optional[int] = ...) -> None: ...

class FunctionCall(_message.Message):
    __slots__ = ("name", "arguments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    arguments: str
    def __init__(self, name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class Rag(_message.Message):
    __slots__ = ("enabled", "collections", "top_k", "candidates", "filter", "min_score", "mode", "late_interaction", "return_contexts")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MIN_SCORE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    LATE_INTERACTION_FIELD_NUMBER: _ClassVar[int]
    RETURN_CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    collections: _containers.RepeatedScalarFieldContainer[str]
    top_k: int
    candidates: int
    filter: str
    min_score: float
    mode: str
    late_interaction: bool
    return_contexts: bool
    def __init__(self, enabled: _Optional[bool] = ..., collections: _Optional[_Iterable[str]] = ..., top_k: _Optional[int] = ..., candidates: _Optional[int] = ..., filter: _Optional[str] = ..., min_score: _Optional[float] = ..., mode: _Optional[str] = ..., late_interaction: _Optional[bool] = ..., return_contexts: _Optional[bool] = ...) -> None: ...

class ChatReply(_message.Message):
    __slots__ = ("id", "created", "model", "choices", "usage", "baton")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    BATON_FIELD_NUMBER: _ClassVar[int]
    id: str
    created: int
    model: str
    choices: _containers.RepeatedCompositeFieldContainer[Choice]
    usage: Usage
    baton: Report
    def __init__(self, id: _Optional[str] = ..., created: _Optional[int] = ..., model: _Optional[str] = ..., choices: _Optional[_Iterable[_Union[Choice, _Mapping]]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., baton: _Optional[_Union[Report, _Mapping]] = ...) -> None: ...

class Choice(_message.Message):
    __slots__ = ("index", "message", "logprobs", "finish_reason")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    index: int
    message: AnswerMessage
    logprobs: Logprobs
    finish_reason: str
    def __init__(self, index: _Optional[int] = ..., message: _Optional[_Union[AnswerMessage, _Mapping]] = ..., logprobs: _Optional[_Union[Logprobs, _Mapping]] = ..., finish_reason: _Optional[str] = ...) -> None: ...

class AnswerMessage(_message.Message):
    __slots__ = ("role", "content", "tool_calls")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ...) -> None: ...

class ChatChunk(_message.Message):
    __slots__ = ("id", "created", "model", "choices", "usage", "baton")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    BATON_FIELD_NUMBER: _ClassVar[int]
    id: str
    created: int
    model: str
    choices: _containers.RepeatedCompositeFieldContainer[ChunkChoice]
    usage: Usage
    baton: Report
    def __init__(self, id: _Optional[str] = ..., created: _Optional[int] = ..., model: _Optional[str] = ..., choices: _Optional[_Iterable[_Union[ChunkChoice, _Mapping]]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., baton: _Optional[_Union[Report, _Mapping]] = ...) -> None: ...

class ChunkChoice(_message.Message):
    __slots__ = ("index", "delta", "logprobs", "finish_reason")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    index: int
    delta: AnswerMessage
    logprobs: Logprobs
    finish_reason: str
    def __init__(self, index: _Optional[int] = ..., delta: _Optional[_Union[AnswerMessage, _Mapping]] = ..., logprobs: _Optional[_Union[Logprobs, _Mapping]] = ..., finish_reason: _Optional[str] = ...) -> None: ...

class Logprobs(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    def __init__(self, content: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token", "logprob", "bytes", "top_logprobs")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    token: str
    logprob: float
    bytes: _containers.RepeatedScalarFieldContainer[int]
    top_logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    def __init__(self, token: _Optional[str] = ..., logprob: _Optional[float] = ..., bytes: _Optional[_Iterable[int]] = ..., top_logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "total_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., total_tokens: _Optional[int] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("citations", "confidence", "grounding", "unsupported_numbers", "json", "guardrail", "variant", "stages", "flags", "contexts", "choices")
    class StagesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class FlagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ...) -> None: ...
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    GROUNDING_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    GUARDRAIL_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    citations: _containers.RepeatedCompositeFieldContainer[Citation]
    confidence: float
    grounding: float
    unsupported_numbers: _containers.RepeatedCompositeFieldContainer[UnsupportedNumber]
    json: JsonCheck
    guardrail: _containers.RepeatedCompositeFieldContainer[GuardrailNote]
    variant: Variant
    stages: _containers.ScalarMap[str, float]
    flags: _containers.MessageMap[str, _struct_pb2.Value]
    contexts: _containers.RepeatedCompositeFieldContainer[Passage]
    choices: _containers.RepeatedCompositeFieldContainer[ChoiceReport]
    def __init__(self, citations: _Optional[_Iterable[_Union[Citation, _Mapping]]] = ..., confidence: _Optional[float] = ..., grounding: _Optional[float] = ..., unsupported_numbers: _Optional[_Iterable[_Union[UnsupportedNumber, _Mapping]]] = ..., json: _Optional[_Union[JsonCheck, _Mapping]] = ..., guardrail: _Optional[_Iterable[_Union[GuardrailNote, _Mapping]]] = ..., variant: _Optional[_Union[Variant, _Mapping]] = ..., stages: _Optional[_Mapping[str, float]] = ..., flags: _Optional[_Mapping[str, _struct_pb2.Value]] = ..., contexts: _Optional[_Iterable[_Union[Passage, _Mapping]]] = ..., choices: _Optional[_Iterable[_Union[ChoiceReport, _Mapping]]] = ...) -> None: ...

class ChoiceReport(_message.Message):
    __slots__ = ("index", "citations", "confidence", "grounding", "unsupported_numbers", "json")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    GROUNDING_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    index: int
    citations: _containers.RepeatedCompositeFieldContainer[Citation]
    confidence: float
    grounding: float
    unsupported_numbers: _containers.RepeatedCompositeFieldContainer[UnsupportedNumber]
    json: JsonCheck
    def __init__(self, index: _Optional[int] = ..., citations: _Optional[_Iterable[_Union[Citation, _Mapping]]] = ..., confidence: _Optional[float] = ..., grounding: _Optional[float] = ..., unsupported_numbers: _Optional[_Iterable[_Union[UnsupportedNumber, _Mapping]]] = ..., json: _Optional[_Union[JsonCheck, _Mapping]] = ...) -> None: ...

class Citation(_message.Message):
    __slots__ = ("mark", "id", "collection", "source", "score", "start", "end")
    MARK_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    mark: int
    id: str
    collection: str
    source: str
    score: float
    start: int
    end: int
    def __init__(self, mark: _Optional[int] = ..., id: _Optional[str] = ..., collection: _Optional[str] = ..., source: _Optional[str] = ..., score: _Optional[float] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class UnsupportedNumber(_message.Message):
    __slots__ = ("number", "start", "end", "path")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    number: str
    start: int
    end: int
    path: str
    def __init__(self, number: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., path: _Optional[str] = ...) -> None: ...

class JsonCheck(_message.Message):
    __slots__ = ("status", "path", "message", "repaired", "repairs")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    REPAIRS_FIELD_NUMBER: _ClassVar[int]
    status: str
    path: str
    message: str
    repaired: str
    repairs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[str] = ..., path: _Optional[str] = ..., message: _Optional[str] = ..., repaired: _Optional[str] = ..., repairs: _Optional[_Iterable[str]] = ...) -> None: ...

class GuardrailNote(_message.Message):
    __slots__ = ("direction", "action", "categories", "failed_open")
    class CategoriesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    FAILED_OPEN_FIELD_NUMBER: _ClassVar[int]
    direction: str
    action: str
    categories: _containers.ScalarMap[str, int]
    failed_open: bool
    def __init__(self, direction: _Optional[str] = ..., action: _Optional[str] = ..., categories: _Optional[_Mapping[str, int]] = ..., failed_open: _Optional[bool] = ...) -> None: ...

class Variant(_message.Message):
    __slots__ = ("profile", "model", "name")
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    profile: str
    model: str
    name: str
    def __init__(self, profile: _Optional[str] = ..., model: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class RetrieveRequest(_message.Message):
    __slots__ = ("query", "rag", "profile", "timeout_seconds", "priority")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    RAG_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    query: str
    rag: Rag
    profile: str
    timeout_seconds: float
    priority: str
    def __init__(self, query: _Optional[str] = ..., rag: _Optional[_Union[Rag, _Mapping]] = ..., profile: _Optional[str] = ..., timeout_seconds: _Optional[float] = ..., priority: _Optional[str] = ...) -> None: ...

class RetrieveReply(_message.Message):
    __slots__ = ("data", "guardrail", "stages", "flags")
    class StagesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class FlagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ...) -> None: ...
    DATA_FIELD_NUMBER: _ClassVar[int]
    GUARDRAIL_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[Passage]
    guardrail: _containers.RepeatedCompositeFieldContainer[GuardrailNote]
    stages: _containers.ScalarMap[str, float]
    flags: _containers.MessageMap[str, _struct_pb2.Value]
    def __init__(self, data: _Optional[_Iterable[_Union[Passage, _Mapping]]] = ..., guardrail: _Optional[_Iterable[_Union[GuardrailNote, _Mapping]]] = ..., stages: _Optional[_Mapping[str, float]] = ..., flags: _Optional[_Mapping[str, _struct_pb2.Value]] = ...) -> None: ...

class Passage(_message.Message):
    __slots__ = ("id", "collection", "source", "score", "text", "mark")
    ID_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    id: str
    collection: str
    source: str
    score: float
    text: str
    mark: int
    def __init__(self, id: _Optional[str] = ..., collection: _Optional[str] = ..., source: _Optional[str] = ..., score: _Optional[float] = ..., text: _Optional[str] = ..., mark: _Optional[int] = ...) -> None: ...

class AnalyzeRequest(_message.Message):
    __slots__ = ("text", "timeout_seconds")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    text: str
    timeout_seconds: float
    def __init__(self, text: _Optional[str] = ..., timeout_seconds: _Optional[float] = ...) -> None: ...

class AnalyzeReply(_message.Message):
    __slots__ = ("original_length", "language", "sentiment", "summary")
    ORIGINAL_LENGTH_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    SENTIMENT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    original_length: int
    language: str
    sentiment: Sentiment
    summary: str
    def __init__(self, original_length: _Optional[int] = ..., language: _Optional[str] = ..., sentiment: _Optional[_Union[Sentiment, _Mapping]] = ..., summary: _Optional[str] = ...) -> None: ...

class Sentiment(_message.Message):
    __slots__ = ("label", "score")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    label: str
    score: float
    def __init__(self, label: _Optional[str] = ..., score: _Optional[float] = ...) -> None: ...

class ArticlesRequest(_message.Message):
    __slots__ = ("search_term", "url", "text", "timeout_seconds")
    SEARCH_TERM_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    search_term: str
    url: str
    text: str
    timeout_seconds: float
    def __init__(self, search_term: _Optional[str] = ..., url: _Optional[str] = ..., text: _Optional[str] = ..., timeout_seconds: _Optional[float] = ...) -> None: ...

class ArticlesReply(_message.Message):
    __slots__ = ("success", "message", "summary", "named_entities")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    NAMED_ENTITIES_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    summary: str
    named_entities: _containers.RepeatedCompositeFieldContainer[_struct_pb2.Value]
    def __init__(self, success: _Optional[bool] = ..., message: _Optional[str] = ..., summary: _Optional[str] = ..., named_entities: _Optional[_Iterable[_Union[_struct_pb2.Value, _Mapping]]] = ...) -> None: ...
