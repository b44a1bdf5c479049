import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Ticket(_message.Message):
    __slots__ = ("id", "assignment", "search_fields", "extensions", "persistent_field", "create_time")
    class ExtensionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    class PersistentFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELDS_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    PERSISTENT_FIELD_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    id: str
    assignment: Assignment
    search_fields: SearchFields
    extensions: _containers.MessageMap[str, _any_pb2.Any]
    persistent_field: _containers.MessageMap[str, _any_pb2.Any]
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., search_fields: _Optional[_Union[SearchFields, _Mapping]] = ..., extensions: _Optional[_Mapping[str, _any_pb2.Any]] = ..., persistent_field: _Optional[_Mapping[str, _any_pb2.Any]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SearchFields(_message.Message):
    __slots__ = ("double_args", "string_args", "tags")
    class DoubleArgsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class StringArgsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DOUBLE_ARGS_FIELD_NUMBER: _ClassVar[int]
    STRING_ARGS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    double_args: _containers.ScalarMap[str, float]
    string_args: _containers.ScalarMap[str, str]
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, double_args: _Optional[_Mapping[str, float]] = ..., string_args: _Optional[_Mapping[str, str]] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("connection", "extensions")
    class ExtensionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    connection: str
    extensions: _containers.MessageMap[str, _any_pb2.Any]
    def __init__(self, connection: _Optional[str] = ..., extensions: _Optional[_Mapping[str, _any_pb2.Any]] = ...) -> None: ...

class DoubleRangeFilter(_message.Message):
    __slots__ = ("double_arg", "max", "min", "exclude")
    class Exclude(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[DoubleRangeFilter.Exclude]
        MIN: _ClassVar[DoubleRangeFilter.Exclude]
        MAX: _ClassVar[DoubleRangeFilter.Exclude]
        BOTH: _ClassVar[DoubleRangeFilter.Exclude]
    NONE: DoubleRangeFilter.Exclude
    MIN: DoubleRangeFilter.Exclude
    MAX: DoubleRangeFilter.Exclude
    BOTH: DoubleRangeFilter.Exclude
    DOUBLE_ARG_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    double_arg: str
    max: float
    min: float
    exclude: DoubleRangeFilter.Exclude
    def __init__(self, double_arg: _Optional[str] = ..., max: _Optional[float] = ..., min: _Optional[float] = ..., exclude: _Optional[_Union[DoubleRangeFilter.Exclude, str]] = ...) -> None: ...

class StringEqualsFilter(_message.Message):
    __slots__ = ("string_arg", "value")
    STRING_ARG_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    string_arg: str
    value: str
    def __init__(self, string_arg: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class TagPresentFilter(_message.Message):
    __slots__ = ("tag",)
    TAG_FIELD_NUMBER: _ClassVar[int]
    tag: str
    def __init__(self, tag: _Optional[str] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("name", "double_range_filters", "string_equals_filters", "tag_present_filters", "created_before", "created_after")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_RANGE_FILTERS_FIELD_NUMBER: _ClassVar[int]
    STRING_EQUALS_FILTERS_FIELD_NUMBER: _ClassVar[int]
    TAG_PRESENT_FILTERS_FIELD_NUMBER: _ClassVar[int]
    CREATED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AFTER_FIELD_NUMBER: _ClassVar[int]
    name: str
    double_range_filters: _containers.RepeatedCompositeFieldContainer[DoubleRangeFilter]
    string_equals_filters: _containers.RepeatedCompositeFieldContainer[StringEqualsFilter]
    tag_present_filters: _containers.RepeatedCompositeFieldContainer[TagPresentFilter]
    created_before: _timestamp_pb2.Timestamp
    created_after: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., double_range_filters: _Optional[_Iterable[_Union[DoubleRangeFilter, _Mapping]]] = ..., string_equals_filters: _Optional[_Iterable[_Union[StringEqualsFilter, _Mapping]]] = ..., tag_present_filters: _Optional[_Iterable[_Union[TagPresentFilter, _Mapping]]] = ..., created_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class MatchProfile(_message.Message):
    __slots__ = ("name", "pools", "extensions")
    class ExtensionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    extensions: _containers.MessageMap[str, _any_pb2.Any]
    def __init__(self, name: _Optional[str] = ..., pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ..., extensions: _Optional[_Mapping[str, _any_pb2.Any]] = ...) -> None: ...

class Match(_message.Message):
    __slots__ = ("match_id", "match_profile", "match_function", "tickets", "extensions", "backfill", "allocate_gameserver")
    class ExtensionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    MATCH_ID_FIELD_NUMBER: _ClassVar[int]
    MATCH_PROFILE_FIELD_NUMBER: _ClassVar[int]
    MATCH_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    TICKETS_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_GAMESERVER_FIELD_NUMBER: _ClassVar[int]
    match_id: str
    match_profile: str
    match_function: str
    tickets: _containers.RepeatedCompositeFieldContainer[Ticket]
    extensions: _containers.MessageMap[str, _any_pb2.Any]
    backfill: Backfill
    allocate_gameserver: bool
    def __init__(self, match_id: _Optional[str] = ..., match_profile: _Optional[str] = ..., match_function: _Optional[str] = ..., tickets: _Optional[_Iterable[_Union[Ticket, _Mapping]]] = ..., extensions: _Optional[_Mapping[str, _any_pb2.Any]] = ..., backfill: _Optional[_Union[Backfill, _Mapping]] = ..., allocate_gameserver: bool = ...) -> None: ...

class Backfill(_message.Message):
    __slots__ = ("id", "search_fields", "extensions", "persistent_field", "create_time", "generation")
    class ExtensionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    class PersistentFieldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELDS_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    PERSISTENT_FIELD_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    search_fields: SearchFields
    extensions: _containers.MessageMap[str, _any_pb2.Any]
    persistent_field: _containers.MessageMap[str, _any_pb2.Any]
    create_time: _timestamp_pb2.Timestamp
    generation: int
    def __init__(self, id: _Optional[str] = ..., search_fields: _Optional[_Union[SearchFields, _Mapping]] = ..., extensions: _Optional[_Mapping[str, _any_pb2.Any]] = ..., persistent_field: _Optional[_Mapping[str, _any_pb2.Any]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., generation: _Optional[int] = ...) -> None: ...

class AssignmentGroup(_message.Message):
    __slots__ = ("ticket_ids", "assignment")
    TICKET_IDS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    ticket_ids: _containers.RepeatedScalarFieldContainer[str]
    assignment: Assignment
    def __init__(self, ticket_ids: _Optional[_Iterable[str]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ...) -> None: ...
