from kizuna.match.openmatch import messages_pb2 as _messages_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunRequest(_message.Message):
    __slots__ = ("profile",)
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    profile: _messages_pb2.MatchProfile
    def __init__(self, profile: _Optional[_Union[_messages_pb2.MatchProfile, _Mapping]] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ("proposal",)
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    proposal: _messages_pb2.Match
    def __init__(self, proposal: _Optional[_Union[_messages_pb2.Match, _Mapping]] = ...) -> None: ...
