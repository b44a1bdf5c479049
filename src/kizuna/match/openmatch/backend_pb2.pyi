from kizuna.match.openmatch import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FunctionConfig(_message.Message):
    __slots__ = ("host", "port", "type")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        GRPC: _ClassVar[FunctionConfig.Type]
        REST: _ClassVar[FunctionConfig.Type]
    GRPC: FunctionConfig.Type
    REST: FunctionConfig.Type
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    type: FunctionConfig.Type
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ..., type: _Optional[_Union[FunctionConfig.Type, str]] = ...) -> None: ...

class FetchMatchesRequest(_message.Message):
    __slots__ = ("config", "profile")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    config: FunctionConfig
    profile: _messages_pb2.MatchProfile
    def __init__(self, config: _Optional[_Union[FunctionConfig, _Mapping]] = ..., profile: _Optional[_Union[_messages_pb2.MatchProfile, _Mapping]] = ...) -> None: ...

class FetchMatchesResponse(_message.Message):
    __slots__ = ("match",)
    MATCH_FIELD_NUMBER: _ClassVar[int]
    match: _messages_pb2.Match
    def __init__(self, match: _Optional[_Union[_messages_pb2.Match, _Mapping]] = ...) -> None: ...

class ReleaseTicketsRequest(_message.Message):
    __slots__ = ("ticket_ids",)
    TICKET_IDS_FIELD_NUMBER: _ClassVar[int]
    ticket_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ticket_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ReleaseTicketsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseAllTicketsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseAllTicketsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AssignmentFailure(_message.Message):
    __slots__ = ("ticket_id", "cause")
    class Cause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[AssignmentFailure.Cause]
        TICKET_NOT_FOUND: _ClassVar[AssignmentFailure.Cause]
    UNKNOWN: AssignmentFailure.Cause
    TICKET_NOT_FOUND: AssignmentFailure.Cause
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    cause: AssignmentFailure.Cause
    def __init__(self, ticket_id: _Optional[str] = ..., cause: _Optional[_Union[AssignmentFailure.Cause, str]] = ...) -> None: ...

class AssignTicketsRequest(_message.Message):
    __slots__ = ("assignments",)
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    assignments: _containers.RepeatedCompositeFieldContainer[_messages_pb2.AssignmentGroup]
    def __init__(self, assignments: _Optional[_Iterable[_Union[_messages_pb2.AssignmentGroup, _Mapping]]] = ...) -> None: ...

class AssignTicketsResponse(_message.Message):
    __slots__ = ("failures",)
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    failures: _containers.RepeatedCompositeFieldContainer[AssignmentFailure]
    def __init__(self, failures: _Optional[_Iterable[_Union[AssignmentFailure, _Mapping]]] = ...) -> None: ...
