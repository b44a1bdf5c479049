"""Reflection: tools that have none of our .proto files (grpcurl, Postman) ask the server for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

    from kizuna.match.serving.rpcs import Rpc

SERVICE = "grpc.reflection.v1alpha.ServerReflection"
# The same messages under a newer name. Served for tools that know no other, and not listed: its file is not here.
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
    servicer = aio.ReflectionServicer({SERVICE, *(rpc.service for rpc in rpcs)}, pool=pool)
    reflect: Reflect = servicer.ServerReflectionInfo
    return reflect


def _add(file: FileDescriptor, pool: DescriptorPool) -> None:
    for dependency in file.dependencies:
        _add(dependency, pool)
    pool.AddSerializedFile(file.serialized_pb)
