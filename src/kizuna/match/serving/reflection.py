"""Reflection: tools that have none of our .proto files (grpcurl, Postman) ask the server for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

    from kizuna.match.serving.rpcs import Rpc

SERVICE = "grpc.reflection.v1alpha.ServerReflection"
# The same messages under a newer name, which is all that some tools know.
SERVICE_TODAY = "grpc.reflection.v1.ServerReflection"
METHOD = "ServerReflectionInfo"
REQUEST, RESPONSE = reflection_pb2.ServerReflectionRequest, reflection_pb2.ServerReflectionResponse

Reflect = Callable[[AsyncIterator[Any], Any], AsyncIterator[Any]]


def reflector(rpcs: Iterable[Rpc]) -> Reflect:
    """What answers a stream of questions about these, and about itself."""
    rpcs = list(rpcs)
    # A pool of its own: files of others are in the pool that everybody shares, and ours must not be there.
    pool = DescriptorPool()
    for file in [*(rpc.request.DESCRIPTOR.file for rpc in rpcs), REQUEST.DESCRIPTOR.file]:
        _add(file, pool)
    pool.Add(_of_today(REQUEST.DESCRIPTOR.file))
    servicer = aio.ReflectionServicer({SERVICE, SERVICE_TODAY, *(rpc.service for rpc in rpcs)}, pool=pool)
    reflect: Reflect = servicer.ServerReflectionInfo
    return reflect


def _add(file: FileDescriptor, pool: DescriptorPool) -> None:
    for dependency in file.dependencies:
        _add(dependency, pool)
    pool.AddSerializedFile(file.serialized_pb)


def _of_today(file: FileDescriptor) -> FileDescriptorProto:
    """The file of the newer name, which is nowhere to be imported from: but for that name, it is the older one."""
    described = FileDescriptorProto.FromString(file.serialized_pb)
    return text_format.Parse(text_format.MessageToString(described).replace("v1alpha", "v1"), FileDescriptorProto())
